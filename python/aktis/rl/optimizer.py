"""Adam with a bound on the gradient's norm, in a few calls for all parameters together.

The same arithmetic as `torch.nn.utils.clip_grad_norm_` followed by `torch.optim.Adam`. Small networks spend
as much time in those two as in the backward pass, and the first use of `torch.optim` loads torch's compiler,
which takes longer than solving CartPole.
"""

import math
from typing import Any

import torch

BETAS = (0.9, 0.999)


class Adam:
    """Moves parameters against their gradients. `norm_max` scales gradients down to this norm."""

    def __init__(self, parameters: list[Any], epsilon: float = 1e-8, norm_max: float = math.inf) -> None:
        self.parameters = [one for one in parameters if one.requires_grad]
        self.epsilon = epsilon
        self.norm_max = norm_max
        self.count = 0
        self.means = [torch.zeros_like(one) for one in self.parameters]
        self.squares = [torch.zeros_like(one) for one in self.parameters]

    def minimize(self, loss: Any, rate: float) -> None:
        """One step against the gradient of `loss`."""
        for one in self.parameters:
            one.grad = None
        loss.backward()
        # A parameter that the loss does not depend on has no gradient.
        self.step([torch.zeros_like(one) if one.grad is None else one.grad for one in self.parameters], rate)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, gradients: list[Any], rate: float) -> None:
        """One step against the gradients, which are scaled in place."""
        if math.isfinite(self.norm_max):
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            torch._foreach_mul_(gradients, (self.norm_max / (norm + 1e-6)).clamp(max=1.0))
        self.count += 1
        first, second = BETAS
        torch._foreach_lerp_(self.means, gradients, 1 - first)
        torch._foreach_mul_(self.squares, second)
        torch._foreach_addcmul_(self.squares, gradients, gradients, 1 - second)
        roots = torch._foreach_sqrt(self.squares)
        torch._foreach_div_(roots, math.sqrt(1 - second**self.count))
        torch._foreach_add_(roots, self.epsilon)
        torch._foreach_addcdiv_(self.parameters, self.means, roots, -rate / (1 - first**self.count))

    def state(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"count": self.count, "means": self.means, "squares": self.squares}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes over what `state` gave."""
        self.count = state["count"]
        saved = [*state["means"], *state["squares"]]
        for mine, other in zip([*self.means, *self.squares], saved, strict=True):
            mine.copy_(other)
