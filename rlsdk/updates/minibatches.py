"""Converts a rollout to rows with advantages, and divides these rows into minibatches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.kernels.factory import advantages
from rlsdk.math.surrogate import segments_of
from rlsdk.networks.actor_critic import ActorCritic, ActorCriticCarry, Estimates, States
from rlsdk.records import Observation, Rollout


@dataclass(frozen=True, slots=True, eq=False)
class PolicyBatch:
    """N steps: all steps of the first environment in order of time, then those of the next one."""

    observation: Observation
    action: Tensor  # [N] or [N, A]
    log_prob: Tensor  # float [N], of the action when it was taken
    value: Tensor  # float [N], the estimate when the action was taken
    advantage: Tensor  # float [N]
    target: Tensor  # float [N], the regression target of the value
    memory: tuple[States, States]  # recurrent states of actor and critic before each step, [N, ..]
    starts: Tensor  # bool [N], True where a new segment of consecutive steps begins
    weight: Tensor | None = None  # float [N], 0 for padding rows; None where there are none

    def __len__(self) -> int:
        return self.target.shape[0]  # `len` of a tensor takes five times as long

    def of_values(self) -> PolicyBatch:
        """The same rows without the fields that only the policy's loss uses. They are faster to shuffle."""
        nothing: Any = ()  # a placeholder for fields that must not be read
        return replace(self, action=nothing, log_prob=nothing, value=nothing, advantage=nothing)

    def rows(self, index: Tensor) -> PolicyBatch:
        """The rows at `index`, int64 [M]. The first row begins a new segment."""
        chosen = tree.map_tensors(lambda leaf: leaf.index_select(0, index), self)
        # the row before it is in another minibatch, so the stored state has to be used
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
    """Return the steps of a rollout with their advantages.

    Args:
        rollout: [T, B] steps of `network`.
        network: computes the values of the observations after the last step and at the end of episodes.
        gamma: discount.
        lam: lambda of generalized advantage estimation.
        cut_every: number of steps after which gradients through the recurrent state are cut; None = never within a
            segment.
    """
    steps, extras = rollout.steps, network.estimates(rollout.steps)
    nothing: Any = ()  # a placeholder for a field that the rollout does not have
    # networks with `stores_estimates = False`: one evaluation of all observations is faster than two
    if (value := extras.value) is None:
        value, next_value = _all_values(rollout, network)
    else:
        next_value = _next_values(rollout, value, extras.memory, network)
    advantage, target, whole = advantages(steps, value, next_value, gamma, lam)
    # with one environment the rows are in order already, and a view saves the copy
    flat = partial(torch.squeeze, dim=1) if steps.reward.shape[1] == 1 else _end_to_end
    observation = tree.map_tensors(flat, steps.observation)
    starts, length = observation.is_first.clone(), len(steps.reward)
    # the rows of the next environment begin a new segment; shorter ones truncate backpropagation
    (starts[::length] if cut_every is None else starts.view(-1, length)[:, ::cut_every]).fill_(True)
    return PolicyBatch(
        observation,
        tree.map_tensors(flat, steps.action),
        nothing if extras.log_prob is None else flat(extras.log_prob),
        flat(value),
        advantage,
        target,
        tree.map_tensors(flat, extras.memory),
        starts,
        # None where no row is padding: losses then need no weights
        None if whole else flat(steps.valid).to(torch.float32),
    )


def _end_to_end(leaf: Tensor) -> Tensor:
    """Reshape [T, B, ..] to [B * T, ..], one environment after another."""
    # recurrent networks need the steps of one environment one after another
    return leaf.transpose(0, 1).flatten(0, 1)


def _all_values(rollout: Rollout[ActorCriticCarry, Estimates], network: ActorCritic) -> tuple[Tensor, Tensor]:
    """Evaluate a network without memory once, for all observations of a rollout.

    Returns:
        (V [T, B] of the observations before the steps, V [T, B] of those after the steps).
    """
    seen, last, finals = rollout.steps.observation, rollout.last_observation, rollout.final_observations
    (steps, count), rest = seen.is_first.shape, [last] if finals is None else [last, finals.observation]
    features = tree.map_tensors(_joined, seen.features, *[part.features for part in rest])
    rows = Observation(features, _joined(seen.is_first, *[part.is_first for part in rest]))
    found = network.found_values(rows, ((), ()))
    value, following = (found[start : start + steps * count].view(steps, count) for start in (0, count))
    if finals is not None:
        following = following.clone()  # because its memory is that of `value`
        following[finals.time, finals.env] = found[(steps + 1) * count :]
    return value, following


def _joined(first: Tensor, *rest: Tensor) -> Tensor:
    """Join [T, B, ..] and others [N, ..] to rows, those of the first tensor in order of time."""
    return torch.cat([first.flatten(0, 1), *rest])


def _next_values(
    rollout: Rollout[ActorCriticCarry, Estimates], values: Tensor, memory: tuple[States, States], network: ActorCritic
) -> Tensor:
    """V [T, B] of the observation after each step.

    `values` [T, B] and `memory` [T, B, ..] are those of the observation before each step.
    """
    last_memory = (rollout.last_carry.actor, rollout.last_carry.critic)
    # the value of step t + 1 is known already; only the last one has to be computed
    following = torch.cat([values[1:], network.found_values(rollout.last_observation, last_memory).unsqueeze(0)])
    if finals := rollout.final_observations:
        after = tree.map_tensors(
            lambda rows, end: torch.cat([rows[1:], end.unsqueeze(0)])[finals.time, finals.env],
            memory,
            last_memory,
        )
        # at the end of an episode the next row is the first of another one, so its value is that of the last
        # observation
        following[finals.time, finals.env] = network.found_values(finals.observation, after)
    return following


def shuffled_order(batch: PolicyBatch, generator: Generator) -> Tensor:
    """Return the indices of the rows in random order, int64 [M]. Rows with weight 0 are left out."""
    index = torch.randperm(len(batch), generator=generator, device=batch.target.device)
    # after the draw, so that the random numbers do not depend on the number of padding rows
    return index if batch.weight is None else index[batch.weight[index] > 0.0]


def shuffled(batch: PolicyBatch, size: int, generator: Generator) -> Iterator[PolicyBatch]:
    """Yield minibatches of `size` rows in random order; the last one may be smaller.

    Every row appears once, except rows with weight 0, which are left out.
    """
    index = shuffled_order(batch, generator)
    if not len(index):
        return
    # one copy of all rows in the new order; minibatches are then views of it
    drawn = batch.rows(index)
    # every minibatch begins a segment: its first row has no predecessor in it
    drawn.starts[::size] = True
    yield from tree.split(drawn, size) if len(index) > size else (drawn,)


def in_order(batch: PolicyBatch, size: int, generator: Generator, burn_in: int = 0) -> Iterator[PolicyBatch]:
    """Yield minibatches of `size` consecutive rows, beginning at a random row, for recurrent networks. Every row
    appears once.

    With `burn_in`, the first rows of a segment that starts inside an episode get weight 0: they only update the stored
    recurrent state. Source: Kapturowski et al. 2019 (R2D2), section 3. Minibatches without a positive weight are left
    out.
    """
    count, device = len(batch), batch.target.device
    place = int(torch.randint(count, (), generator=generator, device=device))
    # the start is random, so that minibatches are not cut at the same rows in every epoch
    index = torch.arange(count, device=device).roll(-place)
    for chosen in torch.split(index, size):
        rows = batch.rows(chosen)
        if burn_in:
            rows = replace(rows, weight=_without_first(rows, burn_in))
        # a mean over no rows would be NaN
        if rows.weight is None or bool(rows.weight.any()):
            yield rows


def _without_first(rows: PolicyBatch, count: int) -> Tensor:
    """The weights [N] of the rows, with 0 for the first `count` rows of each segment that does not begin an episode."""
    first_rows, segment, place = segments_of(rows.starts)
    # a segment that begins an episode starts from the true state and needs no burn-in
    goes_on = ~rows.observation.is_first[first_rows]
    weight = torch.ones_like(rows.target) if rows.weight is None else rows.weight
    return weight.masked_fill(goes_on[segment] & (place < count), 0.0)
