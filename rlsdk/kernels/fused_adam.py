"""Adam for one vector of parameters, without the overhead of `torch.optim.Adam.step`.

For a small network this overhead costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.kernels.compiled_vectors import adam_step, fits
from rlsdk.kernels.switch import may_compile

COMPILED_SIZE = 2**17
"""For longer vectors torch is as fast, and uses several threads."""
_options = itemgetter("lr", "betas", "weight_decay", "eps", "maximize")
HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_fused: Callable[..., object] | None = getattr(torch, "_fused_adam_", None)


class AdamKernel:
    """Makes the same step as the fused `torch.optim.Adam`."""

    def __init__(self, optimizer: torch.optim.Optimizer, flat: nn.Parameter) -> None:
        """`flat`, float [D], is the only parameter of `optimizer`."""
        self.optimizer, self.flat = optimizer, flat
        self._compiled = may_compile()
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
        vectors = self.flat.detach(), gradients, moments["exp_avg"], moments["exp_avg_sq"]
        rate, (beta1, beta2), decay, eps, maximize = _options(options)
        if self._compiled and self.flat.numel() <= COMPILED_SIZE and fits(vectors, self.flat.numel()):
            adam_step(vectors, float(moments["step"]), (float(rate), beta1, beta2, eps, decay), maximize)
            return True
        lists = *([vector] for vector in vectors), list[Tensor](), [moments["step"]]
        _fused(*lists, lr=rate, beta1=beta1, beta2=beta2, weight_decay=decay, eps=eps, amsgrad=False, maximize=maximize)
        return True
