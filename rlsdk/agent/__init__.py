"""The user-facing class `Agent`, and its functions: sessions, files, resuming, changing the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.agent.agent import Agent, agent_class, from_parameters, load, make, part, substituted
    from rlsdk.agent.agent_file import as_agent_file, inspect_file, system_info
    from rlsdk.agent.prediction import Session

__all__ = [
    "Agent",
    "Session",
    "agent_class",
    "as_agent_file",
    "from_parameters",
    "inspect_file",
    "load",
    "make",
    "part",
    "substituted",
    "system_info",
]

HOMES = {
    **dict.fromkeys(
        ("Agent", "agent_class", "from_parameters", "load", "make", "part", "substituted"), "rlsdk.agent.agent"
    ),
    **dict.fromkeys(("as_agent_file", "inspect_file", "system_info"), "rlsdk.agent.agent_file"),
    "Session": "rlsdk.agent.prediction",
}
__getattr__, __dir__ = attach(__name__, HOMES)
