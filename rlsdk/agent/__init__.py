"""The user-facing class `Agent`, and its functions: sessions, files, resuming, changing the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.agent.agent import Agent as Agent
    from rlsdk.agent.agent_file import system_info as system_info
    from rlsdk.agent.creation import agent_class as agent_class
    from rlsdk.agent.creation import load as load
    from rlsdk.agent.creation import make as make
    from rlsdk.agent.named_part import part as part
    from rlsdk.agent.session import Session as Session

__all__ = ["Agent", "Session", "agent_class", "load", "make", "part", "system_info"]

HOMES = {
    **dict.fromkeys(("agent_class", "load", "make"), "rlsdk.agent.creation"),
    "Agent": "rlsdk.agent.agent",
    "Session": "rlsdk.agent.session",
    "system_info": "rlsdk.agent.agent_file",
    "part": "rlsdk.agent.named_part",
}
__getattr__, __dir__ = attach(__name__, HOMES)
