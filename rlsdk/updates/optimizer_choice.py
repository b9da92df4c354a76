"""Creates optimisers by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from rlsdk.errors import SettingsError
from rlsdk.kernels.compiler_import import without_compiler

CLASSES: dict[str, type[torch.optim.Optimizer]] = {
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
FUSED = ("adagrad", "adam", "adamw", "sgd")
ELEMENTWISE = frozenset([*CLASSES.values(), torch.optim.ASGD, torch.optim.Rprop])
"""Optimisers that compute every number separately, so one vector of all parameters has the same result as the tensors."""
Maker = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]
"""A function that creates the optimiser of some parameters."""


def adam_arguments(choice: object, arguments: Mapping[str, object] | None) -> dict[str, object]:
    """The arguments of an on-policy algorithm's optimiser.

    Without `arguments`, Adam has the documented epsilon of 1e-5. With `arguments` that do not contain `eps`, it has
    torch's default 1e-8.
    """
    if arguments is None:
        return {"eps": 1e-5} if choice == "adam" else {}
    return dict(arguments)


def maker(
    choice: str | Callable[..., torch.optim.Optimizer], learning_rate: float, arguments: Mapping[str, object] | None
) -> Maker:
    """Return a function that creates the optimiser of some parameters."""
    kind: Callable[..., torch.optim.Optimizer] = CLASSES[choice] if isinstance(choice, str) else choice

    def make(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        options: dict[str, object] = {"lr": learning_rate, **(arguments or {})}
        if (
            isinstance(choice, str)
            and choice in FUSED
            and not (options.get("foreach") or options.get("differentiable"))
        ):
            options.setdefault("fused", all(p.numel() > 0 and p.is_floating_point() for p in parameters))
        try:
            with without_compiler():
                found = kind(list(parameters), **options)
        except (TypeError, ValueError, RuntimeError) as error:
            advice = (
                "" if isinstance(choice, str) else "; it may be a function (parameters, lr) that chooses among them"
            )
            raise SettingsError(
                f"optimizer_kwargs {dict(arguments or {})} do not fit {choice}: {error}{advice}"
            ) from None
        if not isinstance(found, torch.optim.Optimizer):
            raise SettingsError(
                f"optimizer_class {choice} returned {type(found).__name__}; return a torch.optim.Optimizer"
            )
        _require_plain_steps(found)
        return found

    return make


def _require_plain_steps(optimizer: torch.optim.Optimizer) -> None:
    """Raises SettingsError for optimisers that updates cannot use.

    Those are optimisers whose `step()` needs a function that evaluates the loss again (LBFGS), that train other weights
    than they evaluate (schedule-free), or that need sparse gradients.
    """
    name = f"optimizer_class {type(optimizer).__name__}"
    if callable(getattr(optimizer, "train", None)) and callable(getattr(optimizer, "eval", None)):
        raise SettingsError(
            f"{name} evaluates averaged weights, not those it trains (train() and eval()), and agents act with the weights"
            f" they train; accepted: {', '.join(CLASSES)}, or another class without eval()"
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise SettingsError(
            f"{name} needs sparse gradients, and networks have dense ones; accepted: {', '.join(CLASSES)}"
        )
    given = inspect.signature(optimizer.step).parameters.values()
    if any(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in given
    ):
        raise SettingsError(
            f"{name} evaluates the loss several times per step, and updates do so once;"
            f" accepted: {', '.join(CLASSES)}, or another class that evaluates it once"
        )
