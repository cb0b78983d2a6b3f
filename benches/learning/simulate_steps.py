"""Steps per second of 1024 classic environments with random actions, from Python, on one core."""

import os
import sys
from functools import partial
from typing import Any

import numpy as np
from simulate_turns import rate, run_row

COUNT = 1024
ENV = os.environ.get("BENCH_ENV", "CartPole-v1")


def one_core() -> None:
    """All threads of the process share one core from now on."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def stepped(envs: Any, count: int, seconds: float) -> float:
    """Drives the environments with actions that were drawn before."""
    random = np.random.default_rng(1)
    if ENV == "Pendulum-v1":
        drawn = [random.uniform(-2, 2, (count, 1)).astype(np.float32) for _ in range(16)]
    else:
        drawn = list(random.integers(2, size=(16, count)))
    envs.reset()
    turn = iter(range(sys.maxsize))
    return rate(seconds, count, lambda: envs.step(drawn[next(turn) % 16]))


def aktis(seconds: float) -> float:
    from aktis.simulate import make_vec

    one_core()
    return stepped(make_vec(ENV, COUNT, seed=1), COUNT, seconds)


def envpool(seconds: float) -> float:
    import envpool

    one_core()
    return stepped(envpool.make_gymnasium(ENV, num_envs=COUNT, num_threads=1, seed=1), COUNT, seconds)


def gymnasium(mode: str, seconds: float) -> float:
    import gymnasium

    one_core()
    count = 16 if mode == "sync" else COUNT
    return stepped(gymnasium.make_vec(ENV, count, vectorization_mode=mode), count, seconds)


if __name__ == "__main__":
    measures = {"aktis": aktis, "envpool": envpool, "gymnasium (sync)": partial(gymnasium, "sync")}
    if ENV == "CartPole-v1":
        measures["gymnasium (its own numpy)"] = partial(gymnasium, "vector_entry_point")
    run_row(f"{ENV}, {COUNT} environments, random actions, one core", measures, __file__)
