"""The networks of an agent: what its settings make them, and whether they are still that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from rlsdk.engines import architecture
from rlsdk.errors import UsageError
from rlsdk.parts import Parts

if TYPE_CHECKING:
    from rlsdk.agent import Agent


def architecture_of(parts: Parts) -> list[str]:
    """Layers of the policy's networks and the algorithm's: classes, sizes and names."""
    return architecture(*_networks(parts.policy), *_networks(parts.algorithm))


def require_same_layers(agent: Agent, what: str) -> None:
    """Refuse to make another agent from the settings where they no longer describe the networks.

    Raises:
        UsageError: layers were replaced by others since the agent was made.
    """
    now = architecture_of(agent.built)
    if now != agent._made_as:
        different = next((line for line in now if line not in agent._made_as), "fewer layers")
        raise UsageError(
            f"{what}: its networks are not the layers that the settings describe ({different}), so the result would act"
            " otherwise; choose layers by policy_kwargs (net_arch, activation_fn, features_extractor_class), or write the"
            " weights alone: torch.save(model.policy.state_dict(), path)"
        )


def _networks(part: Any) -> list[nn.Module]:
    """The modules of a part: itself, what it wraps, and what it holds, target networks included."""
    while not isinstance(part, nn.Module) and hasattr(part, "inner"):
        part = part.inner
    if isinstance(part, nn.Module):
        return [part]
    held = [getattr(value, "network", value) for value in getattr(part, "__dict__", {}).values()]
    return [value for value in held if isinstance(value, nn.Module)]
