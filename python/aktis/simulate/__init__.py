"""Simulation: environments for reinforcement learning, built in or Gymnasium's.

- `make_vec` gives a `gymnasium.vector.VectorEnv`, in Rust where the environment is built in.
- `Rollouts` drives built-in environments with a small policy, without Python between the steps.
- `evaluate_population` plays episodes with many policies, for evolution strategies.

The guide is docs/simulate.md.
"""

from aktis.simulate._builtin import builtin_ids, is_builtin
from aktis.simulate._make import make_vec
from aktis.simulate._population import evaluate_population
from aktis.simulate._rollouts import Layers, Rollouts

__all__ = ["Layers", "Rollouts", "builtin_ids", "evaluate_population", "is_builtin", "make_vec"]
