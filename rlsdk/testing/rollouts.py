"""Experience for checks: what an agent collects in its own environment."""

from __future__ import annotations

from typing import Any

import torch

from rlsdk.agent import Agent
from rlsdk.collect import collect
from rlsdk.loops import Cursor
from rlsdk.records import Rollout


def rollout_of(agent: Agent, steps: int, seed: int = 0) -> Rollout[Any, Any]:
    """`steps` vector steps from a reset on; the agent's own streams are not touched."""
    assert agent.env is not None
    env = agent.preparation.environment(agent.env, agent.parts)
    cursor = Cursor.begin(env, agent.parts.collector, seed)
    generator = torch.Generator().manual_seed(seed)
    return collect(env, agent.parts.collector, cursor.observation, cursor.carry, steps, generator=generator)
