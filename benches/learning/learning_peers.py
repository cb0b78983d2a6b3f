"""The environment with the peers, and the end of what they leave running."""

import os
import signal
import subprocess
import sys
from pathlib import Path

#: Installed one by one: one that cannot be installed is left out.
PEERS = (
    *("gymnasium[mujoco]", "numpy", "torch", "stable-baselines3", "envpool", "rlox"),
    *("ray[rllib]", "openmpi", "mpi4py", "cloudpickle"),
)


def python(home: Path) -> Path:
    """The interpreter of the environment with the peers, which is made if it is not there."""
    interpreter = home.absolute() / "bin" / "python"
    record = home / "peers.txt"
    if record.exists() and record.read_text() == "\n".join(PEERS):
        return interpreter
    print(f"making {home} with {', '.join(PEERS)}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    for peer in PEERS:
        install = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", peer]
        if subprocess.run(install).returncode != 0:
            print(f"{peer} cannot be installed, and is left out", file=sys.stderr)
    record.write_text("\n".join(PEERS))
    return interpreter


def sweep(mark: str) -> int:
    """Kills all processes that have `mark` in their environment, but this one; how many there were."""
    found = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                found += 1
        except OSError:
            continue
    return found
