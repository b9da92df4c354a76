"""RMSprop for one vector of parameters, without the overhead of `torch.optim.RMSprop.step`.

For a small network this overhead costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk_kernels.fused_adam import HOOKS

UNUSUAL = ("weight_decay", "momentum", "centered", "maximize", "differentiable", "capturable")
"""Options of torch with which it makes another step than the one here."""


class RmspropKernel:
    """Makes the same step as `torch.optim.RMSprop` with default options; only `lr`, `alpha` and `eps` may differ."""

    def __init__(self, optimizer: torch.optim.Optimizer, flat: nn.Parameter) -> None:
        """`flat`, float [D], is the only parameter of `optimizer`."""
        self.optimizer, self.flat = optimizer, flat

    def step(self, optimizer: Any, moments: MutableMapping[str, Tensor]) -> bool:
        """Make the step that `optimizer`, with the state `moments` ([D] or 0-d), would make.

        Returns False, without a step, if the result might differ."""
        groups, gradients = optimizer.param_groups, self.flat.grad
        options = groups[0]
        if (
            optimizer is not self.optimizer
            or not moments
            or gradients is None
            or any(options[name] for name in UNUSUAL)
        ):
            return False
        if (
            len(groups) > 1
            or options["params"][0] is not self.flat
            or any(getattr(optimizer, name, True) for name in HOOKS)
        ):
            return False
        alpha, square = options["alpha"], moments["square_avg"]
        moments["step"] += 1
        with torch.no_grad():
            square.mul_(alpha).addcmul_(gradients, gradients, value=1 - alpha)
            self.flat.addcdiv_(gradients, square.sqrt().add_(options["eps"]), value=-options["lr"])
        return True
