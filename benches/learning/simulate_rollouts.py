"""Steps per second of rollouts: 64 CartPoles, an actor and a critic of 64x64 tanh each."""

import sys

from results import Demand
from simulate_turns import arguments, rate, run_row

COUNT = 64
STEPS = 128


def aktis(seconds: float) -> float:
    import numpy as np

    from aktis.simulate import Rollouts

    random = np.random.default_rng(1)

    def layers(outputs: int) -> list[tuple[object, object]]:
        sizes = [(64, 4), (64, 64), (outputs, 64)]
        return [(random.normal(0, 0.1, size).astype(np.float32), np.zeros(size[0])) for size in sizes]

    actor, critic = layers(2), layers(1)
    rollouts = Rollouts("CartPole-v1", COUNT, seed=1)
    return rate(seconds, COUNT * STEPS, lambda: rollouts.collect(STEPS, actor, critic))


def stable_baselines3(seconds: float) -> float:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", COUNT), n_steps=STEPS, device="cpu", verbose=0)
    _, callback = model._setup_learn(10**9)
    callback.on_training_start({}, {})
    collect = model.collect_rollouts
    return rate(
        seconds,
        COUNT * STEPS,
        lambda: collect(model.env, callback, model.rollout_buffer, n_rollout_steps=STEPS),
    )


def rlox(seconds: float) -> float:
    from rlox.collectors import RolloutCollector
    from rlox.policies import DiscretePolicy

    collector = RolloutCollector("CartPole-v1", n_envs=COUNT, seed=0)
    policy = DiscretePolicy(obs_dim=4, n_actions=2, hidden=64)
    return rate(seconds, COUNT * STEPS, lambda: collector.collect(policy, n_steps=STEPS))


def rlox_in_rust(seconds: float) -> float:
    from rlox import CandleCollector

    collector = CandleCollector("CartPole-v1", COUNT, 4, 2, STEPS)
    return rate(seconds, COUNT * STEPS, collector.recv)


def main() -> int:
    measures = {
        "aktis": aktis,
        "Stable-Baselines3": stable_baselines3,
        "rlox": rlox,
        "rlox in Rust": rlox_in_rust,
    }
    demands = (Demand(5, "Stable-Baselines3", goal=20), Demand(3, "rlox"), Demand(3, "rlox in Rust"))
    name = f"rollouts, {COUNT} CartPoles, actor and critic of 64x64 tanh"
    return run_row(arguments(__doc__ or "").parse_args(), name, measures, [__file__], demands)


if __name__ == "__main__":
    sys.exit(main())
