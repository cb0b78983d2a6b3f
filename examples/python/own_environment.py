"""An environment of one's own in actors: a policy learns to land by trying out others near it.

Run it with `python examples/python/own_environment.py`.
"""

from typing import Any

import gymnasium
import numpy as np

import aktis
from aktis.simulate import MlpPolicy, Simulator


class Lander(gymnasium.Env[Any, Any]):
    """Falls from a random height, and has to touch the ground slowly; the action is the thrust, 0 to 1."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.height, self.speed, self.steps = self.np_random.uniform(8.0, 12.0), 0.0, 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        thrust = float(np.clip(action[0], 0.0, 1.0))
        self.speed += 0.1 * (2.0 * thrust - 1.0)
        self.height += 0.5 * self.speed
        self.steps += 1
        landed = self.height <= 0.0
        reward = -0.02 - (abs(self.speed) if landed else 0.0)
        return self._seen(), reward, landed, self.steps >= 200, {}

    def _seen(self) -> Any:
        return np.array([self.height / 10.0, self.speed], np.float32)


def policy_of(parameters: Any) -> MlpPolicy:
    """A linear policy: thrust = w · (height, speed) + b."""
    return MlpPolicy([(parameters[None, :2], parameters[2:])], distribution="greedy")


def main() -> None:
    random = np.random.default_rng(1)
    with aktis.init(num_cpus=2), Simulator(Lander, num_actors=2, envs_per_actor=4, seed=1) as simulator:
        best = np.zeros(3)
        best_return = mean_returns(simulator, [best])[0]
        print(f"falling: a return of {best_return:.2f}")
        for _ in range(12):
            tried = [best + random.normal(0, 0.6, 3) for _ in range(8)]
            returns = mean_returns(simulator, tried)
            if returns.max() > best_return:
                best, best_return = tried[int(returns.argmax())], returns.max()
        print(f"landing: a return of {best_return:.2f}")
        print(f"{simulator.num_steps:,} steps, {simulator.num_failures} failures of environments")


def mean_returns(simulator: Simulator, tried: list[Any]) -> Any:
    """The mean returns of the policies, which are tried as actors are free."""
    found = np.zeros(len(tried))
    for number, parameters in enumerate(tried):
        simulator.submit(policy_of(parameters), episodes=8, tag=number)
    for _ in tried:
        result = simulator.collect()
        found[result["tag"]] = result["episode_returns"].mean()
    return found


if __name__ == "__main__":
    main()
