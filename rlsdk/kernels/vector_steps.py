"""Describes the steps of torch's Adam and RMSprop, for compiled code that makes them itself."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlsdk.kernels.compiler_import import HOOKS
from rlsdk.kernels.protocol import VectorStep

UNUSUAL = ("weight_decay", "momentum", "centered", "maximize", "differentiable", "capturable")
"""The options of RMSprop with which it makes other steps than the one of its source."""


def next_steps(
    optimizer: torch.optim.Optimizer, flat: nn.Parameter, moments: Mapping[str, Tensor], max_norm: float | None
) -> VectorStep | None:
    """Return the next steps of an optimiser whose only parameter is `flat` [D]; None: only the optimiser itself can make them.

    It makes the first one, because before there are no moments.

    Args:
        optimizer: the optimiser.
        flat: the parameter.
        moments: the state of the parameter, [D] or 0-d.
        max_norm: gradients are first scaled down to this norm; None: never.
    """
    gradient, (options, *others) = flat.grad, optimizer.param_groups
    has_hooks = any(getattr(optimizer, name, True) for name in HOOKS)
    if not moments or gradient is None or others or options["params"][0] is not flat or has_hooks:
        return None
    vectors, numbers = (flat.detach(), gradient), (moments["step"], float(options["lr"]))
    if type(optimizer) is torch.optim.Adam:
        if not options["fused"] or any(options.get(name) for name in ("amsgrad", "maximize", "decoupled_weight_decay")):
            return None
        both, last = (moments["exp_avg"], moments["exp_avg_sq"]), (options["eps"], options["weight_decay"])
        return VectorStep("adam", (*vectors, *both), *numbers, options["betas"], *last, max_norm)
    if type(optimizer) is not torch.optim.RMSprop or any(options[name] for name in UNUSUAL):
        return None
    square, alpha = moments["square_avg"], options["alpha"]
    return VectorStep("rmsprop", (*vectors, square, square), *numbers, (alpha, alpha), options["eps"], 0.0, max_norm)
