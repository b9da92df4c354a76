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
    """Create an activation module from a name or from the user's own class.

    Raises:
        SettingsError: the user's class needs arguments, or does not create a module.
    """
    if isinstance(choice, str):
        return _MODULES[choice]()
    advice = "give a class such as torch.nn.Mish, or a function without arguments that makes a module"
    try:
        found: object = choice()
    except Exception as error:  # code of the user
        problem = " ".join(str(error).split())
        raise SettingsError(f"activation_fn {choice!r} cannot be made: {problem}; {advice}") from None
    if not isinstance(found, nn.Module):
        raise SettingsError(f"activation_fn {choice!r} makes {shown(found, 40)}, not a module; {advice}")
    return found


def mlp(
    inputs: int, widths: Sequence[int], activation_fn: str | Callable[[], nn.Module], *, bias: bool = True
) -> nn.Sequential:
    """Build hidden layers only: a linear layer and an activation per width. The output has `widths[-1]` (or `inputs`)
    features."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width, bias=bias), activation(activation_fn)]
        inputs = width
    return nn.Sequential(*layers)
