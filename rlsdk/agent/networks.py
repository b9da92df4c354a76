"""The networks of an agent: the layers its settings describe, and whether these are unchanged."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.errors import UsageError
from rlsdk.interfaces import Parts
from rlsdk.interfaces.abilities import ability
from rlsdk.networks.architecture import architecture


class Wraps(Protocol):
    """A part that adds to another one, as exploration does to a policy."""

    @property
    def inner(self) -> object: ...


def architecture_of(parts: Parts) -> list[str]:
    """Layers of the policy's networks and the algorithm's: classes, sizes and names."""
    further = [module for state in parts.states.values() for module in _networks(state)]
    return architecture(*_networks(parts.policy), *_networks(parts.algorithm), *further)


def require_same_layers(agent: AssembledAgent, what: str) -> None:
    """Refuse to make another agent from the settings where they no longer describe the networks.

    Raises:
        UsageError: layers were replaced by others since the agent was made.
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
    """The modules of a part: itself, what it wraps, and what it holds, target networks included."""
    while not isinstance(part, nn.Module) and (wrapper := ability(part, Wraps)) is not None:
        part = wrapper.inner
    if isinstance(part, nn.Module):
        return [part]
    held = [getattr(value, "network", value) for value in getattr(part, "__dict__", {}).values()]
    return [value for value in held if isinstance(value, nn.Module)]
