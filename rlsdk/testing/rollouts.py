"""Experience for checks: what an agent collects in its own environment."""

from __future__ import annotations

from typing import Any

import torch

from rlsdk.agent import Agent
from rlsdk.collect import collect
from rlsdk.loops import Cursor
from rlsdk.records import Rollout, Scored


def rollout_of(agent: Agent, steps: int, seed: int = 0) -> Rollout[Any, Any]:
    """`steps` vector steps from a reset on; the agent's own streams are not touched."""
    assert agent.env is not None
    env = agent.preparation.environment(agent.env, agent.parts)
    cursor = Cursor.begin(env, agent.parts.collector, seed)
    generator = torch.Generator().manual_seed(seed)
    return collect(env, agent.parts.collector, cursor.observation, cursor.carry, steps, generator=generator)


def scored(agent: Agent) -> Scored:
    """Candidates the algorithm proposes now, with scores that are all different."""
    proposer: Any = agent.parts.algorithm
    candidates = proposer.propose(progress=0.5)
    score = torch.randn(len(candidates), generator=torch.Generator().manual_seed(5)).to(candidates.device)
    return Scored(candidates, score, len(candidates))
