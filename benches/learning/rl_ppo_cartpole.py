"""CartPole-v1 to a mean return of 475 over 100 training episodes, by PPO; the peer is Stable-Baselines3.

usage: python benches/learning/rl_ppo_cartpole.py --peers-python PATH
"""

import sys
from typing import Any

import rl_rows


def make(seed: int) -> Any:
    import aktis.rl

    return aktis.rl.PPO("CartPole-v1", seed=seed)


if __name__ == "__main__":
    title = "CartPole-v1 to 475 over 100 episodes, PPO"
    sys.exit(rl_rows.row(title, __file__, make, limit=5, peer="peer_sb3_ppo_cartpole.py"))
