"""The hooks that the entry point of this package names. They return functions, so asking for names imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from torch import nn


@hookimpl
def networks() -> dict[str, Callable[..., nn.Module]]:
    """Name -> function that makes a network for `network_class`, `actor_class` and `critic_class`."""
    return {"mlp": partial(_network, "MlpNetwork"), "simba": partial(_network, "SimbaNetwork")}


@hookimpl
def distributions() -> dict[str, Callable[..., nn.Module]]:
    """Name -> function that makes the action head for `action_distribution`."""
    return {"beta": partial(_head, "BetaHead"), "dirichlet": partial(_head, "DirichletHead")}


def _network(name: str, *arguments: object, **settings: object) -> nn.Module:
    from rlsdk_networks import networks as classes

    made: nn.Module = getattr(classes, name)(*arguments, **settings)
    return made


def _head(name: str, *arguments: object, **settings: object) -> nn.Module:
    from rlsdk_networks import heads

    made: nn.Module = getattr(heads, name)(*arguments, **settings)
    return made
