"""The user-facing class `Agent`, and its functions: sessions, files, resuming, changing the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.agent.agent import Agent as Agent
    from rlsdk.agent.agent import agent_class as agent_class
    from rlsdk.agent.agent import from_parameters as from_parameters
    from rlsdk.agent.agent import load as load
    from rlsdk.agent.agent import make as make
    from rlsdk.agent.agent import part as part
    from rlsdk.agent.agent import substituted as substituted
    from rlsdk.agent.agent_file import as_agent_file as as_agent_file
    from rlsdk.agent.agent_file import inspect_file as inspect_file
    from rlsdk.agent.agent_file import system_info as system_info
    from rlsdk.agent.prediction import Session as Session

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
    **dict.fromkeys(("agent_class", "from_parameters", "load", "make"), "rlsdk.agent.agent"),
    **dict.fromkeys(("as_agent_file", "inspect_file", "system_info"), "rlsdk.agent.agent_file"),
    "Agent": "rlsdk.agent.agent",
    "Session": "rlsdk.agent.prediction",
    **dict.fromkeys(("part", "substituted"), "rlsdk.agent.agent"),
}
__getattr__, __dir__ = attach(__name__, HOMES)
