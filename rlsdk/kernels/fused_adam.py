"""Adam for one vector of parameters, without the overhead of `torch.optim.Adam.step`.

For a small network this overhead costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.kernels.protocol import VectorStep

_options = itemgetter("lr", "betas", "weight_decay", "eps", "maximize")
HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_fused: Callable[..., object] | None = getattr(torch, "_fused_adam_", None)


class AdamKernel:
    """Makes the same step as the fused `torch.optim.Adam`; see `rlsdk.kernels.protocol.OptimizerKernel`."""

    def __init__(self, optimizer: torch.optim.Optimizer, flat: nn.Parameter) -> None:
        """`flat`, float [D], is the only parameter of `optimizer`."""
        self.optimizer, self.flat = optimizer, flat
        self._known = _fused is not None and all(hasattr(optimizer, name) for name in HOOKS)

    def _is_known(self, optimizer: Any, moments: MutableMapping[str, Tensor]) -> bool:
        """Whether the step is that of Adam. It is not for another optimiser, further parameters, hooks, `amsgrad`, or before the
        first step."""
        groups = optimizer.param_groups
        options = groups[0]
        if not self._known or optimizer is not self.optimizer or not moments or options["amsgrad"]:
            return False
        if len(groups) > 1 or options["params"][0] is not self.flat or self.flat.grad is None:
            return False
        return not (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)

    def step(self, optimizer: Any, moments: MutableMapping[str, Tensor]) -> bool:
        """See `rlsdk.kernels.protocol.OptimizerKernel`."""
        if not self._is_known(optimizer, moments):
            return False
        assert _fused is not None and self.flat.grad is not None
        moments["step"] += 1
        averages = [moments["exp_avg"]], [moments["exp_avg_sq"]]
        lists = [self.flat.detach()], [self.flat.grad], *averages, list[Tensor](), [moments["step"]]
        rate, (beta1, beta2), decay, eps, maximize = _options(optimizer.param_groups[0])
        _fused(*lists, lr=rate, beta1=beta1, beta2=beta2, weight_decay=decay, eps=eps, amsgrad=False, maximize=maximize)
        return True

    def described(
        self, optimizer: Any, moments: MutableMapping[str, Tensor], max_norm: float | None
    ) -> VectorStep | None:
        """See `rlsdk.kernels.protocol.OptimizerKernel`."""
        rate, decays, decay, eps, maximize = _options(optimizer.param_groups[0])
        gradient = self.flat.grad
        if maximize or not self._is_known(optimizer, moments) or gradient is None:
            return None
        vectors = self.flat.detach(), gradient, moments["exp_avg"], moments["exp_avg_sq"]
        return VectorStep("adam", vectors, moments["step"], rate, decays, eps, decay, max_norm)
