"""Steps per second of 1024 classic environments with random actions, from Python, on one core."""

import os
import sys
from functools import partial
from typing import Any

import numpy as np

from results import Demand
from simulate_turns import arguments, rate, run_row

COUNT = 1024


def one_core() -> None:
    """All threads of the process share one core from now on."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def stepped(env: str, envs: Any, count: int, seconds: float) -> float:
    """Drives the environments with actions that were drawn before."""
    random = np.random.default_rng(1)
    if env == "Pendulum-v1":
        drawn = [random.uniform(-2, 2, (count, 1)).astype(np.float32) for _ in range(16)]
    else:
        drawn = list(random.integers(2, size=(16, count)))
    envs.reset()
    turn = iter(range(sys.maxsize))
    return rate(seconds, count, lambda: envs.step(drawn[next(turn) % 16]))


def aktis(env: str, seconds: float) -> float:
    from aktis.simulate import make_vec

    one_core()
    return stepped(env, make_vec(env, COUNT, seed=1), COUNT, seconds)


def envpool(env: str, seconds: float) -> float:
    import envpool

    one_core()
    return stepped(env, envpool.make_gymnasium(env, num_envs=COUNT, num_threads=1, seed=1), COUNT, seconds)


def gymnasium(mode: str, env: str, seconds: float) -> float:
    import gymnasium

    one_core()
    count = 16 if mode == "sync" else COUNT
    return stepped(env, gymnasium.make_vec(env, count, vectorization_mode=mode), count, seconds)


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--env", choices=["CartPole-v1", "Pendulum-v1"], default="CartPole-v1")
    given = parser.parse_args()
    measures = {
        "aktis": partial(aktis, given.env),
        "EnvPool": partial(envpool, given.env),
        "Gymnasium": partial(gymnasium, "sync", given.env),
    }
    if given.env == "CartPole-v1":
        measures["Gymnasium's numpy"] = partial(gymnasium, "vector_entry_point", given.env)
    demands = (Demand(2, "EnvPool"), Demand(50, "Gymnasium"), Demand(goal=50e6))
    name = f"built-in {given.env}, random actions, one core"
    return run_row(given, name, measures, [__file__, "--env", given.env], demands)


if __name__ == "__main__":
    sys.exit(main())
