"""Adam for one vector of parameters, without the overhead of `torch.optim.Adam.step`.

For a small network this overhead costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

HOOKS = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"  # torch has no public names
_options = itemgetter("lr", "betas", "weight_decay", "eps", "maximize")
_fused: Callable[..., object] | None = getattr(torch, "_fused_adam_", None)


class AdamKernel:
    """Makes the same step as the fused `torch.optim.Adam`."""

    def __init__(self, optimizer: torch.optim.Optimizer, flat: nn.Parameter) -> None:
        """`flat`, float [D], is the only parameter of `optimizer`."""
        self.optimizer, self.flat = optimizer, flat
        self._known = _fused is not None and all(hasattr(optimizer, name) for name in HOOKS)

    def step(self, optimizer: Any, moments: MutableMapping[str, Tensor]) -> bool:
        """Make the step that `optimizer`, with the state `moments` ([D] or 0-d), would make.

        Returns False, without a step, if the result might differ.

        That is the case for another optimiser, further parameters, hooks, `amsgrad`, or before the first step.
        """
        groups, gradients = optimizer.param_groups, self.flat.grad
        options = groups[0]
        if not self._known or optimizer is not self.optimizer or not moments or gradients is None or options["amsgrad"]:
            return False
        if len(groups) > 1 or options["params"][0] is not self.flat:
            return False
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            return False
        assert _fused is not None
        moments["step"] += 1
        averages = [moments["exp_avg"]], [moments["exp_avg_sq"]]
        lists = [self.flat.detach()], [gradients], *averages, list[Tensor](), [moments["step"]]
        rate, (beta1, beta2), decay, eps, maximize = _options(options)
        _fused(*lists, lr=rate, beta1=beta1, beta2=beta2, weight_decay=decay, eps=eps, amsgrad=False, maximize=maximize)
        return True
