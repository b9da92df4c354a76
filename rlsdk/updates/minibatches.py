"""A rollout as a learning algorithm reads it: rows with advantages, and minibatches of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.math.returns import gae
from rlsdk.math.segments import segments_of
from rlsdk.networks.actor_critic import ActorCritic, ActorCriticCarry, Estimates, States
from rlsdk.records import Observation, Rollout


@dataclass(frozen=True, slots=True, eq=False)
class PolicyBatch:
    """N steps, one environment after another, in order of time."""

    observation: Observation
    action: Tensor  # [N] or [N, A]
    log_prob: Tensor  # float [N], when the action was taken
    value: Tensor  # float [N], likewise
    advantage: Tensor  # float [N]
    target: Tensor  # float [N], the regression target of the value
    memory: tuple[States, States]  # the actor's and the critic's before each step, [N, ..]
    starts: Tensor  # bool [N], True where the row before is not the step before
    weight: Tensor | None = None  # float [N], 0 for filler rows; None where there are none

    def __len__(self) -> int:
        return len(self.target)

    def of_values(self) -> PolicyBatch:
        """The same rows without the fields that only a policy's loss reads; they are quicker to shuffle."""
        nothing: Any = ()  # of no field's type: nothing may read these fields
        return replace(self, action=nothing, log_prob=nothing, value=nothing, advantage=nothing)

    def rows(self, index: Tensor) -> PolicyBatch:
        """The rows at `index`, int64 [M]; the first begins a new segment."""
        chosen = tree.map_tensors(lambda leaf: leaf.index_select(0, index), self)
        chosen.starts[0] = True
        return chosen


@torch.no_grad()
def policy_batch(
    rollout: Rollout[ActorCriticCarry, Estimates],
    network: ActorCritic,
    *,
    gamma: float,
    lam: float,
    cut_every: int | None = None,
) -> PolicyBatch:
    """The steps of a rollout with their advantages.

    Args:
        rollout: [T, B] steps of `network`.
        network: gives the values of the observations after the last step and at the end of episodes.
        gamma: discount.
        lam: lambda of generalised advantage estimation.
        cut_every: steps after which gradients through a memory are cut; None = never within a segment.
    """
    steps, extras = rollout.steps, network.estimates(rollout.steps)
    assert extras.value is not None
    nothing: Any = ()  # where the rollout has none: nothing may read the field
    # flags are combined in numpy: its calls take a third of the time of torch's, which counts where rollouts are short
    terminated, truncated, valid = (f.numpy(force=True) for f in (steps.terminated, steps.truncated, steps.valid))
    ended, whole = terminated | truncated, bool(valid.all())
    next_value = _next_values(rollout, extras.value, extras.memory, network)
    # the last row has no successor: what `roll` puts there does not matter
    cut = ended if whole else ended | ~valid | ~np.roll(valid, -1, 0)
    factors = np.float32(gamma) * ~terminated, np.float32(gamma * lam) * ~cut
    discount, trace = (torch.from_numpy(factor).to(next_value.device) for factor in factors)
    flat = partial(torch.squeeze, dim=1) if ended.shape[1] == 1 else _end_to_end
    value, advantage = flat(extras.value), flat(gae(steps.reward, extras.value, next_value, discount, trace))
    starts = steps.observation.is_first.clone()
    starts[:: cut_every or len(starts)].fill_(True)
    return PolicyBatch(
        tree.map_tensors(flat, steps.observation),
        tree.map_tensors(flat, steps.action),
        nothing if extras.log_prob is None else flat(extras.log_prob),
        value,
        advantage,
        advantage + value,
        tree.map_tensors(flat, extras.memory),
        flat(starts),
        None if whole else flat(steps.valid).to(torch.float32),
    )


def _end_to_end(leaf: Tensor) -> Tensor:
    """[T, B, ..] -> [B * T, ..], one environment after another."""
    return leaf.transpose(0, 1).flatten(0, 1)


def _next_values(
    rollout: Rollout[ActorCriticCarry, Estimates], values: Tensor, memory: tuple[States, States], network: ActorCritic
) -> Tensor:
    """V [T, B] of the observation after each step, given those before each step and the memories [T, B, ..] there."""
    last_memory = (rollout.last_carry.actor, rollout.last_carry.critic)
    following = torch.cat([values[1:], network.found_values(rollout.last_observation, last_memory).unsqueeze(0)])
    if finals := rollout.final_observations:
        after = tree.map_tensors(
            lambda rows, end: torch.cat([rows[1:], end.unsqueeze(0)])[finals.time, finals.env],
            memory,
            last_memory,
        )
        following[finals.time, finals.env] = network.found_values(finals.observation, after)
    return following


def shuffled(batch: PolicyBatch, size: int, generator: Generator) -> Iterator[PolicyBatch]:
    """Every row that counts once, in random order, `size` at a time; the last one may be smaller."""
    device = batch.target.device
    index = torch.randperm(len(batch), generator=generator, device=device)
    if batch.weight is not None:
        index = index[batch.weight[index] > 0.0]
        if not len(index):
            return
    drawn = batch.rows(index)
    drawn.starts[::size] = True
    yield from tree.split(drawn, size) if len(index) > size else (drawn,)


def in_order(batch: PolicyBatch, size: int, generator: Generator, burn_in: int = 0) -> Iterator[PolicyBatch]:
    """Every row once, `size` consecutive ones at a time from a random place on, for networks with a memory.

    With `burn_in` the first rows of a segment that starts inside an episode only bring the stored memory up to date: their
    weight is 0. Source: Kapturowski et al. 2019 (R2D2), section 3. Batches in which no row counts are skipped.
    """
    count, device = len(batch), batch.target.device
    place = int(torch.randint(count, (), generator=generator, device=device))
    index = torch.arange(count, device=device).roll(-place)
    for chosen in torch.split(index, size):
        rows = batch.rows(chosen)
        if burn_in:
            rows = replace(rows, weight=_without_first(rows, burn_in))
        if rows.weight is None or bool(rows.weight.any()):
            yield rows


def _without_first(rows: PolicyBatch, count: int) -> Tensor:
    """The weights [N] of rows: 0 for the first `count` of each segment, unless the segment begins an episode."""
    first_rows, segment, place = segments_of(rows.starts)
    goes_on = ~rows.observation.is_first[first_rows]
    weight = torch.ones_like(rows.target) if rows.weight is None else rows.weight
    return weight.masked_fill(goes_on[segment] & (place < count), 0.0)
