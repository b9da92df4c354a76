"""Multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from rlsdk.errors import SettingsError, shown

_MODULES: dict[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "identity": nn.Identity,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


def activation(choice: str | Callable[[], nn.Module]) -> nn.Module:
    """A fresh activation module, by registered name or from the caller's own class.

    Raises:
        SettingsError: the caller's class needs arguments, or makes something else than a module.
    """
    if isinstance(choice, str):
        return _MODULES[choice]()
    advice = "give a class such as torch.nn.Mish, or a function without arguments that makes a module"
    try:
        found: object = choice()
    except Exception as error:  # of the caller's class
        problem = " ".join(str(error).split())
        raise SettingsError(f"activation_fn {choice!r} cannot be made: {problem}; {advice}") from None
    if not isinstance(found, nn.Module):
        raise SettingsError(f"activation_fn {choice!r} makes {shown(found, 40)}, not a module; {advice}")
    return found


def mlp(
    inputs: int, widths: Sequence[int], activation_fn: str | Callable[[], nn.Module], *, bias: bool = True
) -> nn.Sequential:
    """Hidden layers only: Linear and activation per width. `widths[-1]` (or `inputs`) features come out."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width, bias=bias), activation(activation_fn)]
        inputs = width
    return nn.Sequential(*layers)
