"""Describes the steps of torch's Adam and RMSprop, for compiled code that makes them itself."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, optimizer

UNUSUAL = ("weight_decay", "momentum", "centered", "maximize", "differentiable", "capturable")
"""The options of RMSprop with which it makes other steps than the one of its source."""
STEPS_BETWEEN_CLEARING = 32
"""After so many steps of an optimizer, moments that have decayed to almost 0 become 0."""
SMALLEST_MOMENT = 100.0
"""In smallest normal numbers. After 32 steps, 0.9 ** 32 = 1/29 of a moment is still normal."""


class VectorStep(NamedTuple):
    """The next steps of an optimizer for one vector of parameters [D], for code that makes them itself."""

    kind: Literal["adam", "rmsprop"]
    vectors: tuple[Tensor, Tensor, Tensor, Tensor]
    """The parameters, the gradient, and both moments, float32 [D]. Both moments of RMSprop are the mean square."""
    made: Tensor  # 0-d, the number of steps so far
    rate: float
    decays: tuple[float, float]
    """The decay rates of both moments."""
    eps: float
    weight_decay: float
    max_norm: float | None = None
    """The gradient is scaled down to this norm; None: never."""
    clear_every: int = STEPS_BETWEEN_CLEARING
    """After so many steps, moments that have decayed to almost 0 become 0."""
    smallest_moment: float = SMALLEST_MOMENT
    """Smaller moments become 0 then; in smallest normal numbers of their dtype."""


def next_steps(
    optimizer: torch.optim.Optimizer, flat: nn.Parameter, moments: Mapping[str, Tensor], max_norm: float | None
) -> VectorStep | None:
    """Return the next steps of an optimizer whose only parameter is `flat` [D]; None: only the optimizer itself can make them.

    It makes the first one, because before there are no moments.

    Args:
        optimizer: the optimizer.
        flat: the parameter.
        moments: the state of the parameter, [D] or 0-d.
        max_norm: gradients are first scaled down to this norm; None: never.
    """
    # Not `isinstance`: a derived class may make other steps.
    if type(optimizer) not in (torch.optim.Adam, torch.optim.RMSprop):
        return None
    gradient, (options, *others) = flat.grad, optimizer.param_groups
    # True where a version of torch lacks the attribute: then its own step is called.
    has_hooks = getattr(optimizer, HOOKS[0], True) or getattr(optimizer, HOOKS[1], True)
    if not moments or gradient is None or others or options["params"][0] is not flat or has_hooks:
        return None
    vectors, numbers = (flat, gradient), (moments["step"], float(options["lr"]))
    if type(optimizer) is torch.optim.Adam:
        unusual = options["amsgrad"] or options["maximize"] or options.get("decoupled_weight_decay")
        # Compiled code equals the fused step bit by bit; the others of torch round differently.
        if unusual or not options["fused"]:
            return None
        both, last = (moments["exp_avg"], moments["exp_avg_sq"]), (options["eps"], options["weight_decay"])
        return VectorStep("adam", (*vectors, *both), *numbers, options["betas"], *last, max_norm)
    if any(options[name] for name in UNUSUAL):
        return None
    square, alpha = moments["square_avg"], options["alpha"]
    return VectorStep("rmsprop", (*vectors, square, square), *numbers, (alpha, alpha), options["eps"], 0.0, max_norm)


# Creates and steps torch's optimizers without importing torch's compiler.
#
# torch excludes optimizers from compilation. For that it imports its compiler when the first optimizer is created or
# makes a step, which takes two seconds. If the compiler is already imported, the functions here do the same as torch.

COMPILER = "torch._dynamo"
MARK = "__dynamo_disable"
"""torch calls the function in this attribute. Without the attribute it imports its compiler to create the function."""
HOOKS = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
GLOBAL_HOOKS = "_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"
_LOCK = threading.Lock()


@contextmanager
def without_compiler() -> Iterator[None]:
    """Optimizers created inside the `with` block do not import torch's compiler."""
    function = getattr(Optimizer.add_param_group, "__wrapped__", None)
    # The attribute is set on a function of torch, which all threads share.
    with _LOCK:
        if function is None or COMPILER in sys.modules or hasattr(function, MARK):
            yield
            return
        setattr(function, MARK, function)
        try:
            yield
        finally:
            delattr(function, MARK)


def step_optimizer(made: Optimizer) -> None:
    """Call `made.step()`. For torch's own classes, torch's compiler is not imported."""
    kind = type(made)
    if COMPILER in sys.modules or not kind.__module__.startswith("torch.optim.") or _is_watched(made):
        made.step()
        return
    with torch.no_grad():
        # Without the decorators, which import the compiler; what else they do `_is_watched` excludes.
        inspect.unwrap(kind.step)(made)


def _is_watched(made: Optimizer) -> bool:
    """Whether a step does more than the arithmetic: hooks, a learning-rate schedule of torch, or gradients through the step."""
    hooks = [getattr(made, name, True) for name in HOOKS] + [getattr(optimizer, name, True) for name in GLOBAL_HOOKS]
    return any(hooks) or "step" in vars(made) or made.defaults.get("differentiable", True)
