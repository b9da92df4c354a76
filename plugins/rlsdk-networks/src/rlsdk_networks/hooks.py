"""The hooks that the entry point of this package names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from torch import nn


@hookimpl
def networks() -> dict[str, Callable[..., nn.Module]]:
    """Name -> class of networks for `network_class`, `actor_class` and `critic_class`."""
    from rlsdk_networks.networks import MlpNetwork, SimbaNetwork

    return {"mlp": MlpNetwork, "simba": SimbaNetwork}


@hookimpl
def distributions() -> dict[str, Callable[..., nn.Module]]:
    """Name -> function that makes the action head for `action_distribution`."""
    from rlsdk_networks.heads import BetaHead, DirichletHead

    return {"beta": BetaHead, "dirichlet": DirichletHead}
