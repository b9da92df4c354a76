"""Multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

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
    """A fresh activation module, by registered name or from the caller's own class."""
    return _MODULES[choice]() if isinstance(choice, str) else choice()


def mlp(
    inputs: int, widths: Sequence[int], activation_fn: str | Callable[[], nn.Module], *, bias: bool = True
) -> nn.Sequential:
    """Hidden layers only: Linear and activation per width. `widths[-1]` (or `inputs`) features come out."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width, bias=bias), activation(activation_fn)]
        inputs = width
    return nn.Sequential(*layers)
