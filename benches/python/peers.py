"""The four peers: how a session of each begins and ends, and which interpreter has it.

Aktis and Ray have the same API, so a row has one function for both; `open_session` gives the module.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CPUS = 2

#: What Ray and Dask are measured with.
REQUIREMENTS = ("ray==2.60.0", "dask", "distributed", "numpy", "cloudpickle")


@dataclass
class Peer:
    """A running session: `api` is what rows use, `close` ends it."""

    api: Any
    close: Callable[[], object]


def open_aktis(**options: Any) -> Peer:
    import aktis

    aktis.init(num_cpus=CPUS, **options)
    return Peer(aktis, aktis.shutdown)


def open_ray(**options: Any) -> Peer:
    import ray

    # Sockets lie in there, and their paths may not be long.
    folder = tempfile.mkdtemp(prefix="b-", dir="/tmp")
    ray.init(
        num_cpus=CPUS,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        _temp_dir=folder,
        **options,
    )

    def close() -> None:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)

    return Peer(ray, close)


def open_dask() -> Peer:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=CPUS, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    client = Client(cluster)

    def close() -> None:
        client.close()
        cluster.close()

    return Peer(client, close)


def open_multiprocessing() -> Peer:
    from multiprocessing import get_context

    pool = get_context("fork").Pool(CPUS)

    def close() -> None:
        pool.terminate()
        pool.join()

    return Peer(pool, close)


OPEN: dict[str, Callable[..., Peer]] = {
    "aktis": open_aktis,
    "ray": open_ray,
    "dask": open_dask,
    "multiprocessing": open_multiprocessing,
}


def open_session(peer: str, **options: Any) -> Peer:
    """Starts a session of two CPUs; `options` are for `init` of Aktis and Ray."""
    return OPEN[peer](**options)


def environment() -> dict[str, str]:
    """The environment of a measuring process: nobody phones home, nobody starts more threads than asked."""
    return {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS": "1",
        "PYTHONWARNINGS": "ignore",
    }


def others_python(folder: Path) -> Path:
    """The interpreter of an environment with Ray and Dask in `folder`, which is made if there is none."""
    home = folder / "peers"
    interpreter = home / "bin" / "python"
    record = home / "requirements.txt"
    wanted = "\n".join(REQUIREMENTS) + "\n"
    if not (record.exists() and record.read_text() == wanted):
        print(f"making {home} for Ray and Dask", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *REQUIREMENTS], check=True)
        record.write_text(wanted)
    return interpreter
