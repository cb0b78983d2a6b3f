"""EvoTorch: a search whose populations are evaluated by Ray's actors."""

import torch
from evotorch import Problem
from evotorch.algorithms import SNES


def sphere(x: torch.Tensor) -> torch.Tensor:
    return torch.sum(x**2)


problem = Problem("min", sphere, solution_length=5, initial_bounds=(-1, 1), num_actors=2)
searcher = SNES(problem, stdev_init=1.0, popsize=20)
searcher.run(30)
assert searcher.status["best_eval"] < 0.5
problem.kill_actors()
print("well")
