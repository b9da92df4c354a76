"""Collects rollouts for checks, and changes parts of rollouts."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from rlsdk.agent import Agent
from rlsdk.environments import on_device
from rlsdk.records import Rollout
from rlsdk.training import LocalCollector, begin_acting
from rlsdk_testing.batches import POPULATIONS, AnyRollout, other_rows

if TYPE_CHECKING:
    from rlsdk_ars import Scored


def rollout_of(agent: Agent, steps: int, seed: int = 0) -> Rollout[Any, Any]:
    """Reset the agent's environment and collect a rollout of `steps` vector steps. The agent's random streams do not change."""
    policy, device = agent.parts.behavior_policy, agent.preprocessing.context.device
    assert agent.env is not None
    env = agent.preprocessing.environment(on_device(agent.env, device))
    generator = torch.Generator(device).manual_seed(seed)
    normalizer = agent.preprocessing.rollouts(agent.parts)
    collector = LocalCollector(env, (begin_acting(env, policy, seed),), [generator], normalizer)
    return collector.collect(policy, steps)


def scored(agent: Agent) -> Scored:
    """Return the candidates that the algorithm of a population method proposes, with random scores that all differ."""
    proposer: Any = agent.parts.algorithm
    candidates = proposer.propose(progress=0.5)
    score = torch.randn(len(candidates), generator=torch.Generator().manual_seed(5)).to(candidates.device)
    batch: Scored = sys.modules[POPULATIONS].Scored(candidates, score, len(candidates))
    return batch


def with_ends(batch: AnyRollout, *, terminated: bool) -> AnyRollout:
    """Return the rollout, changed so that all episodes end by termination, or by a time limit if `terminated` is False."""
    steps = batch.steps
    ended, never = steps.terminated | steps.truncated, torch.zeros_like(steps.terminated)
    kinds = (ended, never) if terminated else (never, ended)
    return replace(batch, steps=replace(steps, terminated=kinds[0], truncated=kinds[1]))


def with_other_finals(batch: AnyRollout) -> AnyRollout:
    """Return the rollout, changed so that each episode has the last observation of another episode."""
    finals = batch.final_observations
    assert finals is not None
    features = other_rows(finals.observation.features)
    return replace(
        batch, final_observations=replace(finals, observation=replace(finals.observation, features=features))
    )


def with_other_last(batch: AnyRollout) -> AnyRollout:
    """Return the rollout, changed so that the observation after it is that of another environment."""
    last = batch.last_observation
    return replace(batch, last_observation=replace(last, features=other_rows(last.features)))
