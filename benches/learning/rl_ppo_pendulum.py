"""Pendulum-v1 to a mean return of -200 over 100 training episodes, by PPO.

usage: python benches/learning/rl_ppo_pendulum.py
"""

import sys
from typing import Any

import rl_rows


def make(seed: int) -> Any:
    import aktis.rl

    return aktis.rl.PPO("Pendulum-v1", seed=seed)


if __name__ == "__main__":
    sys.exit(rl_rows.row("Pendulum-v1 to -200 over 100 episodes, PPO", __file__, make, limit=300, goal=60))
