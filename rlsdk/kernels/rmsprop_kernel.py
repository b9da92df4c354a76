"""RMSprop for one vector of parameters, without the overhead of `torch.optim.RMSprop.step`.

For a small network this overhead costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.kernels.compiled_vectors import fits, optimizer_step
from rlsdk.kernels.fused_adam import HOOKS
from rlsdk.kernels.protocol import VectorStep
from rlsdk.kernels.switch import may_compile

UNUSUAL = ("weight_decay", "momentum", "centered", "maximize", "differentiable", "capturable")


class RmspropKernel:
    """Makes the same step as `torch.optim.RMSprop` with default options; only `lr`, `alpha` and `eps` may differ.

    See `rlsdk.kernels.protocol.OptimizerKernel`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, flat: nn.Parameter) -> None:
        """`flat`, float [D], is the only parameter of `optimizer`."""
        self.optimizer, self.flat, self._compiled = optimizer, flat, may_compile()

    def described(
        self, optimizer: Any, moments: MutableMapping[str, Tensor], max_norm: float | None
    ) -> VectorStep | None:
        """See `rlsdk.kernels.protocol.OptimizerKernel`."""
        groups, gradient, options = optimizer.param_groups, self.flat.grad, optimizer.param_groups[0]
        is_known = optimizer is self.optimizer and not any(options[name] for name in UNUSUAL)
        has_hooks = any(getattr(optimizer, name, True) for name in HOOKS)
        if not is_known or not moments or has_hooks or len(groups) > 1 or options["params"][0] is not self.flat:
            return None
        if gradient is None:
            return None
        square, alpha = moments["square_avg"], options["alpha"]
        vectors = self.flat.detach(), gradient, square, square
        numbers = float(options["lr"]), (alpha, alpha), options["eps"], 0.0
        return VectorStep("rmsprop", vectors, moments["step"], *numbers, max_norm)

    def step(self, optimizer: Any, moments: MutableMapping[str, Tensor]) -> bool:
        """See `rlsdk.kernels.protocol.OptimizerKernel`."""
        known = self.described(optimizer, moments, None)
        if known is None:
            return False
        known.count.add_(1)
        values, gradients, square, _ = known.vectors
        if self._compiled and fits(known.vectors, self.flat.numel()):
            optimizer_step(known)
            return True
        with torch.no_grad():
            square.mul_(known.decays[0]).addcmul_(gradients, gradients, value=1 - known.decays[0])
            values.addcdiv_(gradients, square.sqrt().add_(known.eps), value=-known.rate)
        return True
