"""CartPole-v1 to a mean return of 475 over 100 training episodes, by PPO, beside Stable-Baselines3 and RLlib.

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
    # RLlib takes a minute and more: three seeds are enough to see ten times as long.
    peers = {
        "Stable-Baselines3": ("peer_sb3_ppo_cartpole.py", 3.0, 5),
        "RLlib": ("peer_rllib_ppo_cartpole.py", 10.0, 3),
    }
    sys.exit(rl_rows.row(title, __file__, make, limit=60, goal=5, peers=peers))
