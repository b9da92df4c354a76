"""The networks of an agent, and checks that their layers are still those that the settings describe."""

from __future__ import annotations

import warnings
from typing import Protocol

from torch import nn

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.errors import UsageError
from rlsdk.interfaces import Parts
from rlsdk.interfaces.abilities import ability
from rlsdk.kernels.hooks import is_hooked
from rlsdk.networks.architecture import architecture


class Wraps(Protocol):
    """A part that wraps another part, for example exploration around a policy."""

    @property
    def inner(self) -> object: ...


def architecture_of(parts: Parts) -> list[str]:
    """The layers of all networks of an agent, as text: classes, sizes and names."""
    return architecture(*networks_of(parts))


def networks_of(parts: Parts) -> list[nn.Module]:
    """The networks of the policy, of the algorithm and in `Parts.states`."""
    return [module for part in (parts.policy, parts.algorithm, *parts.states.values()) for module in _networks(part)]


def take_over_modes(now: Parts, before: Parts) -> None:
    """Copy from earlier networks to rebuilt ones which parameters are frozen, and the train or eval mode of layers.

    Hooks are not copied, because they may refer to the earlier networks; a warning reports this.
    """
    pairs = [pair for both in zip(networks_of(now), networks_of(before), strict=True) for pair in _layers(*both)]
    for layer, old in pairs:
        layer.training = old.training
        for name, parameter in layer.named_parameters(recurse=False):
            parameter.requires_grad_(getattr(old, name).requires_grad)
    if any(is_hooked(old) and not is_hooked(layer) for layer, old in pairs):
        warnings.warn(
            "the networks were built again for another number of environments, without the hooks of the earlier ones; register"
            " the hooks again",
            stacklevel=6,
        )


def _layers(network: nn.Module, before: nn.Module) -> zip[tuple[nn.Module, nn.Module]]:
    return zip(network.modules(), before.modules(), strict=True)


def require_same_layers(agent: AssembledAgent, what: str) -> None:
    """Check that the settings still describe the networks, before another agent is made from the settings.

    `what` is the beginning of the message.

    Raises:
        UsageError: layers were replaced since the agent was made.
    """
    now = architecture_of(agent.parts)
    if now != agent.made_as:
        different = next((line for line in now if line not in agent.made_as), "fewer layers")
        raise UsageError(
            f"{what}: its networks are not the layers that the settings describe ({different}), so the result would act"
            " differently; set layers by policy_kwargs (net_arch, features_extractor_class, your own classes), or write the"
            " weights alone: torch.save(model.policy.state_dict(), path)"
        )


def _networks(part: object) -> list[nn.Module]:
    """The modules of a part: the part itself or the part that it wraps, or else the networks in its attributes, with target
    networks."""
    while not isinstance(part, nn.Module) and (wrapper := ability(part, Wraps)) is not None:
        part = wrapper.inner
    if isinstance(part, nn.Module):
        return [part]
    held = [getattr(value, "network", value) for value in getattr(part, "__dict__", {}).values()]
    return [value for value in held if isinstance(value, nn.Module)]
