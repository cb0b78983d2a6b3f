"""Simulation: environments for reinforcement learning, built in or Gymnasium's.

- `make_vec` gives a `gymnasium.vector.VectorEnv`, in Rust where the environment is built in.
- `Rollouts` drives built-in environments with a small policy, without Python between the steps.
- `evaluate_population` plays episodes with many policies, for evolution strategies.
- `Simulator` runs any Gymnasium environment in actors, and gives results as they come.

The guide is docs/simulate.md.
"""

try:
    import numpy as _numpy  # noqa: F401
except ImportError as error:
    raise ImportError(
        "aktis.simulate needs numpy, which is not installed\nhint: pip install numpy, or 'aktis[rl]'"
    ) from error

from aktis.simulate._actor import Failure, SimulationError
from aktis.simulate._builtin import builtin_ids, is_builtin
from aktis.simulate._make import make_vec
from aktis.simulate._policies import MlpPolicy
from aktis.simulate._population import evaluate_population
from aktis.simulate._rollouts import Layers, Rollouts
from aktis.simulate._simulator import Simulator

__all__ = [
    "Failure",
    "Layers",
    "MlpPolicy",
    "Rollouts",
    "SimulationError",
    "Simulator",
    "builtin_ids",
    "evaluate_population",
    "is_builtin",
    "make_vec",
]
