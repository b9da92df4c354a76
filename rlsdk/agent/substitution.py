"""Replaces the parts and environment of an agent temporarily, for wrappers that measure or record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from rlsdk.agent.agent import Agent
from rlsdk.environments import ConnectedEnv
from rlsdk.interfaces import Parts


@contextmanager
def substituted(agent: Agent, parts: Parts, env: ConnectedEnv | None) -> Iterator[None]:
    """Replace the parts and the environment of `agent` inside the block, and restore them afterwards."""
    own, before = agent._assembled, (agent.parts, agent.env)
    own.parts, own.env = parts, env
    try:
        yield
    finally:
        plan = own.parts.plan  # new settings may have changed it
        own.parts, own.env = before if plan is parts.plan else (replace(before[0], plan=plan), before[1])
