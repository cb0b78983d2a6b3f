"""CartPole-v1 to a mean return of 475 over 100 evaluation episodes, by IMPALA with two actors.

usage: python benches/learning/rl_impala_cartpole.py
"""

import sys
from typing import Any

import rl_rows


def make(seed: int) -> Any:
    import aktis.rl

    return aktis.rl.IMPALA("CartPole-v1", seed=seed)


if __name__ == "__main__":
    sys.exit(rl_rows.row("CartPole-v1 to 475 over 100 episodes, IMPALA", __file__, make, limit=60))
