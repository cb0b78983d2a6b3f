"""The rows: the program of each, what it is given, and how long it may take."""

import os
import shutil
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A program in this folder that measures and ends with `results.finish`."""

    name: str
    program: str
    #: Arguments of a run whose figures are quoted.
    full: tuple[str, ...] = ()
    #: Arguments of a quick look.
    quick: tuple[str, ...] = ()
    #: The longest that it may take.
    limit_s: int = 300
    #: Whether it takes `--peers-python`.
    has_peers: bool = False

    def missing(self) -> str:
        """What this machine lacks for the row; empty if nothing."""
        if self.program == "collective_network.py" and (os.geteuid() != 0 or shutil.which("tc") is None):
            return "it needs root, and `tc` of iproute2"
        return ""


_ONCE = ("--rounds", "1")
_SEED = ("--seeds", "1")

ROWS = (
    Row(
        *("simulate_steps_cartpole", "simulate_steps.py", ("--env", "CartPole-v1")),
        *(("--env", "CartPole-v1", *_ONCE), 300, True),
    ),
    Row(
        *("simulate_steps_pendulum", "simulate_steps.py", ("--env", "Pendulum-v1")),
        *(("--env", "Pendulum-v1", *_ONCE), 300, True),
    ),
    Row("simulate_rollouts", "simulate_rollouts.py", (), _ONCE, 300, True),
    Row("simulate_actors", "simulate_actors.py", (), _ONCE, 300, True),
    Row("mujoco_es", "mujoco_es.py", (), (*_ONCE, "--seconds", "4"), 300, True),
    Row("collective_allreduce", "collective_allreduce.py", (), ("--quick",), 600, True),
    Row("collective_network", "collective_network.py", (), ("--megabytes", "10"), 120),
    Row("train_torch", "train_torch.py", ("--rounds", "3"), _ONCE, 300),
    Row("train_recovery", "train_recovery.py", (), _ONCE, 180),
    Row("train_recovery_preload", "train_recovery.py", ("--preload",), ("--preload", *_ONCE), 180),
    Row("rl_ppo_cartpole", "rl_ppo_cartpole.py", (), _SEED, 900, True),
    Row("rl_dqn_cartpole", "rl_dqn_cartpole.py", (), _SEED, 600),
    Row("rl_impala_cartpole", "rl_impala_cartpole.py", (), _SEED, 400),
    Row("rl_es_pendulum", "rl_es_pendulum.py", (), _SEED, 400),
    Row("rl_ppo_pendulum", "rl_ppo_pendulum.py", (), _SEED, 400),
    Row("rl_memory", "rl_memory.py", ("--minutes", "10"), ("--minutes", "1"), 720),
)
