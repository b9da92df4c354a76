"""The only place where a policy meets an environment."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Generator

from rlsdk import tree
from rlsdk.interfaces import Policy, VectorEnv
from rlsdk.records import Episode, FinalObservations, Observation, Rollout, StepData

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


@torch.no_grad()
def collect(
    env: VectorEnv,
    policy: Policy[CarryT, ExtrasT],
    observation: Observation,
    carry: CarryT,
    length: int,
    *,
    generator: Generator,
) -> Rollout[CarryT, ExtrasT]:
    """`length` steps of every environment: act, step, write one row in place. Gradients are off, random numbers are
    drawn from `generator` only."""
    initial_carry, rows = carry, list[torch.Tensor]()
    storage: StepData[ExtrasT] | None = None
    finals, episodes = list[tuple[int, Any]](), list[Episode]()
    for t in range(length):
        act = policy.act(observation, carry, deterministic=False, generator=generator)
        step = env.step(act.action)
        row = StepData(observation, act.action, step.reward, step.terminated, step.truncated, step.valid, act.extras)
        if storage is None:
            storage = tree.map_tensors(lambda leaf: leaf.new_empty((length, *leaf.shape)), row)
            rows = tree.leaves(storage)
        tree.write(rows, t, row)
        if step.final_observation is not None:
            finals.append((t, step))
        episodes += step.episodes
        observation, carry = step.observation, act.carry
    assert storage is not None
    return Rollout(storage, initial_carry, observation, carry, _join(finals), tuple(episodes))


def _join(finals: list[tuple[int, Any]]) -> FinalObservations | None:
    """The sparse final observations of several steps as one record."""
    if not finals:
        return None
    envs = [(step.terminated | step.truncated).nonzero().squeeze(-1) for _, step in finals]
    times = [torch.full_like(env, t) for env, (t, _) in zip(envs, finals, strict=True)]
    observation = tree.map_tensors(lambda *leaves: torch.cat(leaves), *(step.final_observation for _, step in finals))
    return FinalObservations(torch.cat(times), torch.cat(envs), observation)
