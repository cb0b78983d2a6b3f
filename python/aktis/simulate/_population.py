"""`evaluate_population`: many policies, each of which plays some episodes."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from aktis.simulate._builtin import native_evaluate_population
from aktis.simulate._checks import checked_builtin, checked_count, checked_seed
from aktis.simulate._rollouts import Activation, Distribution, Layers, acting, as_layers


def evaluate_population(
    env_id: str,
    actors: Sequence[Layers] | Any,
    episodes: int = 1,
    *,
    sizes: Sequence[int] | None = None,
    seed: int | None = None,
    activation: Activation = "tanh",
    distribution: Distribution = "greedy",
    log_std: Any = None,
    epsilon: float = 0.0,
) -> tuple[Any, int]:
    """Plays `episodes` episodes with each of P policies: their mean returns `[P]`, and the number of steps.

    `actors` is a list of policies of one shape, each a list of (weight, bias), or a matrix `[P, K]` with the
    parameters of one policy in each row: of each layer the weight, then the bias, in the order of
    `torch.nn.utils.parameters_to_vector`. A matrix needs `sizes`: inputs, hidden widths, outputs.

    All policies play episodes of the same seeds: their differences are what evolution strategies are after.

    >>> import numpy as np
    >>> from aktis.simulate import evaluate_population
    >>> returns, steps = evaluate_population("CartPole-v1", np.zeros((3, 10)), sizes=[4, 2], seed=1)
    >>> returns.shape, bool(steps == returns.sum())
    ((3,), True)
    """
    episodes = checked_count("episodes", episodes)
    checked_builtin(env_id)
    matrix, widths = _matrix(actors, sizes)
    how = acting(activation, distribution, log_std, epsilon)
    returns, steps = native_evaluate_population(env_id, widths, matrix, episodes, checked_seed(seed), how)
    return np.array(returns, np.float64), steps


def _matrix(actors: Any, sizes: Sequence[int] | None) -> tuple[Any, list[int]]:
    """A fresh matrix with a policy in each row, and the widths of its layers."""
    if hasattr(actors, "shape"):
        if hasattr(actors, "detach"):
            actors = actors.detach().cpu().numpy()
        matrix = np.array(actors, np.float32, order="C")
        if matrix.ndim != 2 or sizes is None:
            raise ValueError(
                f"a matrix of parameters has 2 dimensions, got {matrix.ndim}, and comes with sizes\n"
                "hint: actors=[P, K], sizes=[inputs, hidden, ..., outputs]"
            )
        widths = [int(size) for size in sizes]
        wanted = sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(widths))
        if matrix.shape[1] != wanted:
            raise ValueError(
                f"policies of the sizes {widths} have {wanted} parameters, got {matrix.shape[1]}\n"
                "hint: each row has the weight and the bias of each layer, one after another"
            )
        return matrix, widths
    if isinstance(actors, str | bytes) or not isinstance(actors, Sequence):
        raise TypeError(
            f"actors must be a list of policies or a matrix, got {type(actors).__name__}\n"
            "hint: actors=[P, K], sizes=[inputs, hidden, ..., outputs]"
        )
    rows, shapes = [], set()
    for number, actor in enumerate(actors):
        layers = as_layers(actor, f"policy {number}")
        shapes.add(tuple(weight.shape for weight, _ in layers))
        rows.append(np.concatenate([part.ravel() for layer in layers for part in layer]))
    if len(shapes) != 1:
        raise ValueError(
            f"policies must have one shape, got {len(shapes)}\n"
            "hint: a population differs in its numbers alone"
        )
    (shape,) = shapes
    return np.stack(rows), [shape[0][1], *(outputs for outputs, _ in shape)]
