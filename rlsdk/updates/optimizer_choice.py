"""Creates optimisers by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

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
) -> Callable[[nn.Parameter], torch.optim.Optimizer]:
    """Return a function that creates the optimiser of one vector of parameters."""
    kind: Callable[..., torch.optim.Optimizer] = CLASSES[choice] if isinstance(choice, str) else choice

    def make(flat: nn.Parameter) -> torch.optim.Optimizer:
        options: dict[str, object] = {"lr": learning_rate, **(arguments or {})}
        if isinstance(choice, str) and choice in FUSED:
            options.setdefault("fused", flat.numel() > 0 and flat.is_floating_point())
        try:
            with without_compiler():
                found = kind([flat], **options)
        except (TypeError, ValueError) as error:
            raise SettingsError(f"optimizer_kwargs {dict(arguments or {})} do not fit {choice}: {error}") from None
        _require_plain_steps(found)
        return found

    return make


def _require_plain_steps(optimizer: torch.optim.Optimizer) -> None:
    """Raises SettingsError if `step()` needs a function that evaluates the loss again, as LBFGS does."""
    given = inspect.signature(optimizer.step).parameters.values()
    if any(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in given
    ):
        raise SettingsError(
            f"optimizer_class {type(optimizer).__name__} evaluates the loss several times per step, and updates do so once;"
            f" accepted: {', '.join(CLASSES)}, or another class that evaluates it once"
        )
