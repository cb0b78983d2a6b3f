"""Steps per second of Gymnasium's own Pendulum in two actors, with random actions and short episodes.

One request is one episode of 10 steps, and each actor has one at a time. `AsyncVectorEnv` has as many
processes.
"""

import sys
from typing import Any

from results import Demand
from simulate_turns import arguments, rate, run_row

ACTORS = 2
EPISODE_STEPS = 10
EPISODES = 200


def make_pendulum() -> Any:
    import gymnasium

    return gymnasium.make("Pendulum-v1", max_episode_steps=EPISODE_STEPS, disable_env_checker=True)


def aktis(seconds: float) -> float:
    import aktis
    from aktis.simulate import Simulator

    aktis.init(num_cpus=ACTORS)
    with Simulator(make_pendulum, num_actors=ACTORS, seed=1) as simulator:

        def play() -> None:
            for _ in simulator.run(episodes=1, count=EPISODES):
                pass

        return rate(seconds, EPISODES * EPISODE_STEPS, play)


def ray(seconds: float) -> float:
    import ray

    ray.init(num_cpus=ACTORS, include_dashboard=False, logging_level="ERROR")

    @ray.remote
    class Player:
        def __init__(self) -> None:
            self.env = make_pendulum()

        def episode(self) -> tuple[float, int]:
            self.env.reset()
            total, steps, ended = 0.0, 0, False
            while not ended:
                _, reward, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
                total, steps, ended = total + reward, steps + 1, terminated or truncated
            return total, steps

    players = [Player.remote() for _ in range(ACTORS)]

    def play() -> None:
        running = {player.episode.remote(): player for player in players}
        for begun in range(len(players), EPISODES + len(players)):
            (ready,), _ = ray.wait(list(running))
            player = running.pop(ready)
            ray.get(ready)
            if begun < EPISODES:
                running[player.episode.remote()] = player

    try:
        return rate(seconds, EPISODES * EPISODE_STEPS, play)
    finally:
        ray.shutdown()


def async_vector_env(seconds: float) -> float:
    import gymnasium

    envs = gymnasium.vector.AsyncVectorEnv([make_pendulum] * ACTORS)
    envs.reset(seed=1)
    try:
        return rate(seconds, ACTORS, lambda: envs.step(envs.action_space.sample()))
    finally:
        envs.close()


def plain_loop(seconds: float) -> float:
    env = make_pendulum()

    def play() -> None:
        env.reset()
        for _ in range(EPISODE_STEPS):
            env.step(env.action_space.sample())

    return rate(seconds, EPISODE_STEPS, play)


def main() -> int:
    measures = {
        "aktis": aktis,
        "Ray": ray,
        "AsyncVectorEnv": async_vector_env,
        "one process, a plain loop": plain_loop,
    }
    demands = (Demand(3, "Ray"), Demand(3, "AsyncVectorEnv"))
    name = f"Gymnasium's Pendulum in {ACTORS} actors, episodes of {EPISODE_STEPS} steps"
    return run_row(arguments(__doc__ or "").parse_args(), name, measures, [__file__], demands)


if __name__ == "__main__":
    sys.exit(main())
