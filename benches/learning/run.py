"""Runs the rows about learning one after another, each beside its peers.

    cargo xtask bench learning
    cargo xtask bench learning -- rl_ppo simulate

A row is a program in this folder, which can also be run alone. The peers are installed once into an
environment of their own; one that cannot be installed is left out, and the row says so.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = ("gymnasium", "numpy", "torch", "stable-baselines3", "envpool", "rlox", "ray", "mpi4py")
#: The rows, with what each is given beside the peers; and what each is given for a quick look.
ROWS: dict[str, tuple[list[str], list[str]]] = {
    "simulate_steps": ([], ["--rounds", "1"]),
    "simulate_rollouts": ([], ["--rounds", "1"]),
    "simulate_actors": ([], ["--rounds", "1"]),
    "collective_allreduce": ([], ["--quick"]),
    "collective_network": ([], ["--megabytes", "10"]),
    "train_torch": (["--rounds", "3"], ["--rounds", "1"]),
    "train_recovery": ([], ["--rounds", "1"]),
    "rl_ppo_cartpole": ([], ["--seeds", "1"]),
    "rl_dqn_cartpole": ([], ["--seeds", "1"]),
    "rl_impala_cartpole": ([], ["--seeds", "1"]),
    "rl_es_pendulum": ([], ["--seeds", "1"]),
    "rl_ppo_pendulum": ([], ["--seeds", "1"]),
    "rl_memory": ([], ["--minutes", "1"]),
}
WITH_PEERS = (
    *("simulate_steps", "simulate_rollouts", "simulate_actors"),
    *("collective_allreduce", "rl_ppo_cartpole"),
)


def main() -> int:
    """Runs the rows whose names contain one of the filters, all without one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a figure to quote")
    parser.add_argument("--peers-python", type=Path, help="an interpreter that has the peers")
    parser.add_argument("--environments", type=Path, default=Path("target/bench-learning"))
    parser.add_argument("filters", nargs="*", metavar="FILTER", help=f"of: {', '.join(ROWS)}")
    given = parser.parse_args()
    wanted = [row for row in ROWS if not given.filters or any(word in row for word in given.filters)]
    if not wanted:
        parser.error(f"no row is called so; there are {', '.join(ROWS)}")
    needs_peers = any(row in WITH_PEERS for row in wanted)
    peers = given.peers_python or (peers_python(given.environments) if needs_peers else None)
    missed = [row for row in wanted if not run_row(row, given.quick, peers)]
    print(f"\n{len(wanted) - len(missed)} of {len(wanted)} rows ran to their end and reached what they want")
    return 1 if missed else 0


def run_row(row: str, quick: bool, peers: Path | None) -> bool:
    """Runs one row; whether its program says that all is well."""
    if row == "collective_network" and (os.geteuid() != 0 or shutil.which("tc") is None):
        print(f"\n{row}: left out; it needs root, and `tc` of iproute2")
        return True
    command = [sys.executable, str(HERE / f"{row}.py"), *ROWS[row][quick]]
    if peers is not None and row in WITH_PEERS:
        command += ["--peers-python", str(peers)]
    print(f"\n== {row}", flush=True)
    return subprocess.run(command).returncode == 0


def peers_python(home: Path) -> Path:
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


if __name__ == "__main__":
    sys.exit(main())
