"""Makes the steps of torch's Adam, RMSprop and RAdam for one vector of all parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk_kernels.compiled_library import loaded_library, may_compile
from rlsdk_kernels.compiled_vectors import fits

# Adam for one vector of parameters, without the overhead of `torch.optim.Adam.step`.

_options = itemgetter("lr", "betas", "weight_decay", "eps", "maximize")
_fused: Callable[..., object] | None = getattr(torch, "_fused_adam_", None)


class AdamKernel:
    """Makes the same step as the fused `torch.optim.Adam`."""

    def __init__(self, optimizer: torch.optim.Optimizer, flat: nn.Parameter) -> None:
        """`flat`, float [D], is the only parameter of `optimizer`."""
        self.optimizer, self.flat = optimizer, flat

    def step(self, optimizer: Any, moments: MutableMapping[str, Tensor]) -> bool:
        """Make the step that `optimizer`, with the state `moments` ([D] or 0-d), would make.

        Returns False, without a step, if the result might differ.

        That is the case for another optimizer, further parameters, hooks, `amsgrad`, or before the first step.
        """
        options, gradients = optimizer.param_groups[0], self.flat.grad
        if _fused is None or gradients is None or options["amsgrad"]:
            return False
        if optimizer is not self.optimizer or not _is_plain(optimizer, self.flat, moments):
            return False
        moments["step"] += 1
        averages = [moments["exp_avg"]], [moments["exp_avg_sq"]]
        lists: tuple[list[Tensor], ...] = [self.flat.detach()], [gradients], *averages, [], [moments["step"]]
        rate, (beta1, beta2), decay, eps, maximize = _options(options)
        _fused(*lists, lr=rate, beta1=beta1, beta2=beta2, weight_decay=decay, eps=eps, amsgrad=False, maximize=maximize)
        return True


# RMSprop for one vector of parameters, without the overhead of `torch.optim.RMSprop.step`.

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
        options, gradients = optimizer.param_groups[0], self.flat.grad
        if gradients is None or any(options[name] for name in UNUSUAL):
            return False
        if optimizer is not self.optimizer or not _is_plain(optimizer, self.flat, moments):
            return False
        alpha, square = options["alpha"], moments["square_avg"]
        moments["step"] += 1
        with torch.no_grad():
            square.mul_(alpha).addcmul_(gradients, gradients, value=1 - alpha)
            self.flat.addcdiv_(gradients, square.sqrt().add_(options["eps"]), value=-options["lr"])
        return True


def _is_plain(optimizer: torch.optim.Optimizer, flat: nn.Parameter, moments: Mapping[str, Tensor]) -> bool:
    """Whether an optimizer has state and only the parameter `flat` [D], and no hooks."""
    options, *others = optimizer.param_groups
    if not moments or others or options["params"][0] is not flat:
        return False
    try:
        return not (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)
    except AttributeError:
        # torch has no public names for them, and may have others one day
        return False


# RAdam for one vector of parameters, in one call of compiled code instead of some ten of torch. Source: Liu et al. 2020,
# arXiv:1908.03265, algorithm 2.

UNUSUAL_OF_RADAM = ("weight_decay", "maximize", "differentiable", "capturable")


class RadamKernel:
    """Makes the same step as `torch.optim.RAdam` with default options, up to rounding; `lr`, `betas` and `eps` may differ."""

    def __init__(self, optimizer: torch.optim.Optimizer, flat: nn.Parameter) -> None:
        """`flat`, float [D], is the only parameter of `optimizer`."""
        self.optimizer, self.flat = optimizer, flat

    def step(self, optimizer: torch.optim.Optimizer, moments: MutableMapping[str, Tensor]) -> bool:
        """Make the step that `optimizer`, with the state `moments` ([D] or 0-d), would make.

        Returns False, without a step, if compiled code cannot make it."""
        options, gradients = optimizer.param_groups[0], self.flat.grad
        if gradients is None or any(options[name] for name in UNUSUAL_OF_RADAM):
            return False
        if optimizer is not self.optimizer or not _is_plain(optimizer, self.flat, moments):
            return False
        vectors = self.flat.detach(), gradients, moments["exp_avg"], moments["exp_avg_sq"]
        if isinstance(options["lr"], Tensor) or not may_compile() or not fits(vectors, self.flat.numel()):
            return False
        moments["step"] += 1
        numbers = options["lr"], *options["betas"], options["eps"]
        loaded_library().radam_step(*map(Tensor.data_ptr, vectors), self.flat.numel(), *numbers, int(moments["step"]))
        return True
