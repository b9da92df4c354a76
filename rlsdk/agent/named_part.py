"""Properties of agent classes that return a part of the agent, such as a network, under a convenient name."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlsdk.agent.agent import Agent


def part(path: str, doc: str) -> Any:
    """A read-only property of an agent class that returns the attribute `path` (with dots) of the agent's `Parts`.

    `critic_target: ContinuousCritics = part("algorithm.target.network", "The target network of the critics.")`
    """
    names = path.split(".")

    def get(agent: Agent) -> object:
        return reduce(getattr, names, agent.parts)

    return property(get, doc=doc)
