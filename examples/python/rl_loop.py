"""Trains, serves and simulates in one program: a policy answers players while it is being trained.

An actor serves the newest policy. Players, which are tasks, play games in environments of Gymnasium and ask
the server for each action. Meanwhile PPO trains in the driver and publishes its weights, so the players get
better from game to game.

Run it with `python examples/python/rl_loop.py`. Needs the packages of `pip install 'aktis[rl]'`.
"""

import argparse
from typing import Any

import gymnasium
import torch

import aktis
import aktis.rl

PLAYERS = 2
PUBLISH_EVERY = 10


@aktis.remote
class PolicyServer:
    """Answers with the newest policy that it has got."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.trained_steps = 0

    def publish(self, weights: dict[str, Any], trained_steps: int) -> None:
        self.model.load_state_dict(weights)
        self.trained_steps = trained_steps

    def act(self, observation: Any) -> int:
        with torch.no_grad():
            logits, _ = self.model(torch.from_numpy(observation).unsqueeze(0))
        return int(logits.argmax())

    def version(self) -> int:
        """How many steps the policy was trained for."""
        return self.trained_steps


@aktis.remote
def play(server: Any, seed: int) -> tuple[int, float]:
    """One game: how long the policy had been trained when it began, and the points."""
    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=seed)
    version = aktis.get(server.version.remote())
    points, done = 0.0, False
    while not done:
        action = aktis.get(server.act.remote(observation))
        observation, reward, terminated, truncated, _ = environment.step(action)
        points, done = points + float(reward), terminated or truncated
    return version, points


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500_000, help="steps after which training ends")
    steps = parser.parse_args().steps

    with aktis.init(num_cpus=PLAYERS):
        ppo = aktis.rl.PPO("CartPole-v1", seed=1, total_steps=steps)
        server = PolicyServer.remote(ppo.policy.module)
        games = aktis.get([play.remote(server, seed) for seed in range(PLAYERS)])  # before any training
        playing = [play.remote(server, PLAYERS + seed) for seed in range(PLAYERS)]

        def publish(ppo: aktis.rl.PPO) -> None:
            if ppo.iteration % PUBLISH_EVERY == 0:
                server.publish.remote(ppo.policy.module.state_dict(), ppo.steps)
            # Takes the games that are over, without waiting for any.
            over, playing[:] = aktis.wait(playing, num_returns=len(playing), timeout=0)
            games.extend(aktis.get(over))
            playing.extend(play.remote(server, PLAYERS + len(games) + index) for index in range(len(over)))

        result = ppo.train(callback=publish)
        server.publish.remote(ppo.policy.module.state_dict(), ppo.steps)
        aktis.get(playing)  # of older policies, or of several
        last = aktis.get([play.remote(server, seed) for seed in range(4)])

        for version, points in games[:: max(1, len(games) // 8)]:
            print(f"a game with the policy after {version:7,} steps: {points:3.0f} points")
        print(f"trained for {result.steps:,} steps in {result.seconds:.1f} s, and served {len(games)} games")
        mean = sum(points for _, points in last) / len(last)
        print(f"games with the final policy: {mean:.0f} points")


if __name__ == "__main__":
    main()
