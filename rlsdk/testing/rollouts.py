"""Experience for checks: what an agent collects in its own environment."""

from __future__ import annotations

from typing import Any

import torch

from rlsdk.agent import Agent
from rlsdk.records import Rollout, Scored
from rlsdk.training import LocalCollector, begin_acting


def rollout_of(agent: Agent, steps: int, seed: int = 0) -> Rollout[Any, Any]:
    """`steps` vector steps from a reset on; the agent's own streams are not touched."""
    assert agent.env is not None
    env, policy = agent.preprocessing.environment(agent.env), agent.parts.behavior_policy
    generator, normalizer = torch.Generator().manual_seed(seed), agent.preprocessing.rollouts(agent.parts)
    collector = LocalCollector(env, (begin_acting(env, policy, seed),), [generator], normalizer)
    return collector.collect(policy, steps)


def scored(agent: Agent) -> Scored:
    """Candidates the algorithm proposes now, with scores that are all different."""
    proposer: Any = agent.parts.algorithm
    candidates = proposer.propose(progress=0.5)
    score = torch.randn(len(candidates), generator=torch.Generator().manual_seed(5)).to(candidates.device)
    return Scored(candidates, score, len(candidates))
