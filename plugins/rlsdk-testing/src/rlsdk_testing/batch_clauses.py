"""Clauses about what an update reads of a batch. They change entries that must, or must not, affect the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import gymnasium
import torch
from torch import Tensor

from rlsdk.interfaces import AlgorithmAbilities, ability
from rlsdk.records import Rollout, Sequences, Transitions
from rlsdk.spaces import choices_of
from rlsdk.tree import map_tensors
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.batches import (
    ENVS,
    EPISODE,
    ROUNDING,
    ROUNDING_OF_ZEROS,
    AnySequences,
    Batch,
    Learner,
    TreeT,
    is_scored,
    other_rows,
    permuted_distance,
    recording,
    require_rewards,
    reward_of,
    rows_in_batch,
    rows_where,
    transitions_of,
    with_rewards,
)
from rlsdk_testing.dose_clauses import weights_on
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import ACTIONS, Subject, differing

GAMMA = 0.9
LARGE = 50.0
"""The number that is added to rewards that must not have an effect."""


def _bootstrapping(subject: Subject, **changes: float) -> tuple[Learner, Batch]:
    """Return a learner with the settings `changes`, and a batch from its buffer in which all discounts are `GAMMA`.

    Raises:
        NotApplicable: the algorithm learns neither from discounts nor from next observations, or not from rewards.
    """
    learner = Learner(subject, **changes)
    batch = transitions_of(learner)
    require_rewards(learner, batch)
    batch = replace(batch, discount=torch.full_like(batch.discount, GAMMA))
    ended = replace(batch, discount=torch.zeros_like(batch.discount))
    if not learner.reads(batch, ended) and not learner.reads(batch, _with_other_next(batch)):
        raise NotApplicable("its update reads neither discounts nor next observations, as one without bootstrapping")
    return learner, batch


def _with_other_next(batch: Batch, rows: Tensor | None = None) -> Batch:
    """Return the batch with next observations of other rows, where `rows`, bool [..], is True; None is all rows.

    They are exchanged among `rows` alone. So the batch holds the same observations as before, and networks that normalize over
    the whole batch compute the same statistics.
    """
    following = batch.next_observation
    dim = batch.discount.dim() - 1
    if rows is None:
        other = other_rows(following.features, dim)
    else:
        order, places = torch.arange(rows.numel()), rows.flatten().nonzero().squeeze(-1)
        order[places] = places.roll(1)
        other = map_tensors(lambda leaf: leaf.flatten(0, dim)[order].view_as(leaf), following.features)
    return replace(batch, next_observation=replace(following, features=other))


@clause(
    "batch.next-observation-read",
    "update() learns from the next observations of rows whose discount is above 0.",
    "update(): the target of a value is reward + discount * value(next_observation). The update read another"
    " observation, or none.",
)
def next_observation_read(subject: Subject) -> None:
    learner, batch = _bootstrapping(subject)
    require(
        learner.reads(batch, _with_other_next(batch)),
        f"with discounts of {GAMMA} other next observations give the same weights, to the bit",
    )


@clause(
    "batch.discount-read",
    "update() multiplies the value of the next observation by the row's discount, which is 0 at terminations"
    " and gamma ** n elsewhere.",
    "update(): multiply the value of next_observation by batch.discount, not by gamma or 1 - done.",
)
def discount_read(subject: Subject) -> None:
    learner, batch = _bootstrapping(subject)
    for other in (0.0, GAMMA / 2):
        changed = replace(batch, discount=torch.full_like(batch.discount, other))
        require(
            learner.reads(batch, changed),
            f"discounts of {GAMMA} and of {other} give the same weights, to the bit",
        )


@clause(
    "batch.discounts-mark-ends",
    "In all sequences that update() gets, from a buffer or directly from the environments, `discount` is 0 at"
    " terminations and above 0 elsewhere, and `loss_mask` is False where `valid` is.",
    "sample() of the buffer, rounds(): discount = gamma * ~terminated, which is not 0 at truncated rows. loss_mask is False"
    " where steps.valid is.",
)
def discounts_mark_ends(subject: Subject) -> None:
    learner = Learner(subject)
    if not isinstance(learner.batch, Sequences):
        raise NotApplicable("it does not learn from sequences; buffer.rows-are-true is about Transitions")
    for number, batch in enumerate([*learner.batches, *_with_resets(subject)]):
        wrong = batch.steps.valid & ((batch.discount == 0.0) != batch.steps.terminated)
        row = wrong.nonzero()[:1].flatten().tolist()
        require(
            not row,
            f"update {number}: row {row} has terminated = {bool(batch.steps.terminated[wrong][:1].any())} and discount ="
            f" {batch.discount[wrong][:1].sum():.4g}",
        )
        fillers = (batch.loss_mask & ~batch.steps.valid).nonzero()[:1].flatten().tolist()
        require(not fillers, f"update {number}: row {fillers} has valid = False, and loss_mask = True")


def _with_resets(subject: Subject) -> list[Batch]:
    """Return the batches of a training in gymnasium's own vector environment, where the step after an episode is a reset."""
    if subject.spec.info:
        return []  # it has no entries of info
    batches = list[Batch]()
    makers = [lambda: AnySpaceEnv(subject.seen, ACTIONS[subject.action_kind], EPISODE)] * ENVS
    agent = subject.agent(gymnasium.vector.SyncVectorEnv(makers))
    with recording(agent.parts.algorithm, batches.append):
        agent.learn(8 * EPISODE * ENVS)
    return batches


@clause(
    "batch.ends-have-no-next",
    "update() does not learn from the next observation of rows with discount 0, whose episode terminated.",
    "update(): multiply everything computed from next_observation by batch.discount, also an entropy bonus.",
)
def ends_have_no_next(subject: Subject) -> None:
    learner, batch = _bootstrapping(subject)
    rows = torch.arange(batch.discount.numel()).view_as(batch.discount) % 3 == 1
    batch = replace(batch, discount=batch.discount.masked_fill(rows, 0.0))
    distance = learner.distance(learner.after(batch), learner.after(_with_other_next(batch, rows)))
    require(
        distance <= ROUNDING_OF_ZEROS,
        f"other next observations in the rows whose discount is 0 change an update by {distance:.1%}",
    )


@clause(
    "batch.next-masks-read",
    "If the algorithm uses masks, the value of a next observation is computed from its allowed actions only.",
    "update(): mask the values of next_observation with next_observation.action_mask before the maximum or mean over actions.",
)
def next_masks_read(subject: Subject) -> None:
    learner, batch = _bootstrapping(subject)
    following = batch.next_observation
    if subject.spec.action_masks == "ignored" or following.action_mask is None:
        raise NotApplicable("it uses no action masks")
    if isinstance(batch, Sequences):
        raise NotApplicable("it learns from sequences, as with values of observations, which have no mask")
    sizes = choices_of(learner.agent.context.action_space)
    masks = [_only(following.action_mask, sizes, place) for place in (0, -1)]
    one, two = (replace(batch, next_observation=replace(following, action_mask=mask)) for mask in masks)
    require(
        learner.reads(one, two),
        "allowing only the first action, or only the last one, at all next observations gives the same weights, to the bit",
    )


def _only(mask: Tensor, sizes: Sequence[int], place: int) -> Tensor:
    """Return a mask like `mask` [.., A] that allows one action of each choice: that at `place`, 0 (first) or -1 (last)."""
    parts = [part.clone().fill_(False) for part in torch.split(mask, list(sizes), -1)]
    for part in parts:
        part[..., place] = True
    return torch.cat(parts, -1)


@clause(
    "batch.weights",
    "Rows with weight 0 in a batch of a prioritized buffer do not change the critic's parameters.",
    "update(): multiply the loss of each row by batch.weight, if it is not None.",
)
def weights(subject: Subject) -> None:
    learner, batch = _bootstrapping(subject)
    rows = torch.arange(batch.discount.shape[-1]) % 3 == 1
    ones = torch.ones(len(rows))
    equal, some = replace(batch, weight=ones), replace(batch, weight=ones.masked_fill(rows, 0.0))
    if ability(learner.agent.parts.algorithm, AlgorithmAbilities, "td_error") is None and not learner.reads(
        equal, some
    ):
        raise NotApplicable("its update reads no weights, and it has no td_error for prioritized memories")
    reward = reward_of(some) + LARGE * rows
    others = with_rewards(_with_other_next(some, rows.expand_as(batch.discount)), reward)
    distance = learner.distance(learner.after(some), learner.after(others))
    require(
        distance <= ROUNDING_OF_ZEROS,
        f"other rewards and next observations in the rows whose weight is 0 change an update by {distance:.1%}",
    )


def _errors(learner: Learner, batch: Transitions) -> Tensor:
    """Make an update with `batch`, and return the algorithm's `td_error` [N]."""
    holder = ability(learner.agent.parts.algorithm, AlgorithmAbilities, "td_error")
    if holder is None:
        raise NotApplicable("it has no td_error")
    learner.after(batch)
    error = holder.td_error
    require(error is not None, "td_error is None after an update")
    assert error is not None
    return error.detach().clone()


@clause(
    "batch.td-error",
    "`td_error` has one finite number per row of the last batch. It is not negative and does not depend on the"
    " rows' weights.",
    "update(): store the absolute errors of all rows in `td_error`, before they are multiplied by the weights.",
)
def td_error(subject: Subject) -> None:
    learner, batch = _bootstrapping(subject)
    count = batch.discount.shape[-1]
    ones = torch.ones(count)
    plain = _errors(learner, replace(batch, weight=ones))
    require(plain.shape == (count,), f"td_error has the shape {tuple(plain.shape)} for a batch of {count} rows")
    require(bool(plain.isfinite().all() & (plain >= 0.0).all()), f"td_error has the entries {plain.tolist()}")
    weighed = _errors(learner, replace(batch, weight=ones.masked_fill(torch.arange(count) % 3 == 1, 0.0)))
    require(
        torch.allclose(plain, weighed, rtol=1e-3, atol=1e-5),
        f"with the weight 0 the error of row 1 is {float(weighed[1]):.4g}, with 1 it is {float(plain[1]):.4g}",
    )


@clause(
    "batch.td-error-of-its-row",
    "The `td_error` of a row depends on the reward of the same row, not on rewards of other rows.",
    "update(): give td_error in the order of the batch. Look for shapes that broadcast, such as [N, 1] with [N].",
)
def td_error_of_its_row(subject: Subject) -> None:
    learner, batch = _bootstrapping(subject)
    if not isinstance(batch, Transitions):
        raise NotApplicable("its rows are sequences")
    batch = replace(batch, weight=torch.ones(len(batch.reward)))
    changed = batch.reward.clone()
    changed[1] += LARGE
    moved = (_errors(learner, replace(batch, reward=changed)) - _errors(learner, batch)).abs()
    others = float(torch.cat([moved[:1], moved[2:]]).max())
    require(
        float(moved[1]) > 10.0 * others,
        f"a reward that is {LARGE:g} higher in row 1 moves the error of row 1 by {float(moved[1]):.3g}, that of another by"
        f" {others:.3g}",
    )


@clause(
    "batch.padding",
    "Rows of sequences with `valid` False are padding or resets. Their contents do not change the update.",
    "update(): multiply the loss by batch.loss_mask, and end traces where the next row is not valid.",
)
def padding(subject: Subject) -> None:
    learner, batch = _bootstrapping(subject, **weights_on(subject))
    if not isinstance(batch, Sequences):
        raise NotApplicable("it does not learn from sequences")
    rows = torch.zeros_like(batch.loss_mask)
    rows[-1 - len(rows) // 4 :, ::2] = True
    valid, mask = batch.steps.valid & ~rows, batch.loss_mask & ~rows
    batch = replace(batch, steps=replace(batch.steps, valid=valid), loss_mask=mask)
    others = _with_other_rows(batch, rows)
    distance = learner.distance(learner.after(batch), learner.after(others))
    require(
        distance <= ROUNDING_OF_ZEROS, f"other values in the rows that are not valid change an update by {distance:.1%}"
    )


def _with_other_rows(batch: AnySequences, rows: Tensor) -> AnySequences:
    """Return the batch with the content of other rows and large rewards, where `rows`, bool [T, N], is True.

    Changed are observations, actions, extras and next observations. The ends of episodes and `valid` stay.
    """
    steps = batch.steps
    changed = replace(steps, reward=steps.reward + LARGE)
    other: Batch = map_tensors(lambda leaf: leaf.roll(1, 1), (changed, batch.next_observation))
    new: Batch = map_tensors(lambda a, b: rows_where(rows, a, b), other, (steps, batch.next_observation))
    observation = replace(new[0].observation, is_first=steps.observation.is_first)
    changed = replace(new[0], observation=observation, terminated=steps.terminated, truncated=steps.truncated)
    return replace(batch, steps=replace(changed, valid=steps.valid), next_observation=new[1])


@clause(
    "batch.loss-mask",
    "update() does not learn from the rewards of rows whose `loss_mask` is False, in batches of sequences.",
    "update(): multiply the loss of each row by batch.loss_mask, which excludes more rows than steps.valid.",
)
def loss_mask(subject: Subject) -> None:
    learner, batch = _bootstrapping(subject)
    if not isinstance(batch, Sequences):
        raise NotApplicable("it does not learn from sequences")
    mask = batch.loss_mask.clone()
    mask[: 1 + len(mask) // 4] = False
    batch = replace(batch, loss_mask=mask)
    # A reward affects the rows before it. So rewards of the burn-in (the first rows) affect only rows of the burn-in.
    others = with_rewards(batch, batch.steps.reward + LARGE * ~mask * (mask.cumsum(0) == 0))
    distance = learner.distance(learner.after(batch), learner.after(others))
    require(distance <= ROUNDING_OF_ZEROS, f"other rewards in the burn-in change an update by {distance:.1%}")


@clause(
    "batch.repeatable",
    "Two updates from the same state with the same batch are equal, bit for bit. No other state remains from"
    " an earlier update.",
    "update(): set gradients to zero before backward(). Include all state that remains after an update in"
    " state_dict().",
)
def repeatable(subject: Subject) -> None:
    learner = Learner(subject)
    one, two = (dict(learner.after(learner.batch)) for _ in range(2))
    wrong = differing(one, two)
    require(not wrong, f"the second update from the same state gives other values of {wrong[:5]}")


@clause(
    "batch.rows-permuted",
    "The order of the rows of a batch does not matter. The reward, action and next observation of a row are"
    " used together.",
    "update(): use the columns of one row together. Look for rows that are shifted by one, and for columns"
    " that are flattened in different orders.",
)
def rows_permuted(subject: Subject) -> None:
    learner = Learner(subject)
    batch = learner.batch
    if isinstance(batch, Rollout) or is_scored(batch):
        raise NotApplicable("the rows of a rollout have an order; rollout.episodes-permuted is about them")
    count = rows_in_batch(batch)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    distance = permuted_distance(learner, batch, _reordered(batch, order), order)
    require(distance <= ROUNDING, f"the same rows in another order change an update by {distance:.1%}")


def _reordered(batch: Batch, order: Tensor) -> Batch:
    """Return the batch with its rows, or sequences, in the order `order`, int64 [N]."""
    if not isinstance(batch, Sequences):
        return map_tensors(lambda leaf: leaf[order], batch)

    def first(value: TreeT) -> TreeT:
        return map_tensors(lambda leaf: leaf[order], value)

    def second(value: TreeT) -> TreeT:
        return map_tensors(lambda leaf: leaf[:, order], value)

    return Sequences(
        second(batch.steps),
        second(batch.next_observation),
        second(batch.discount),
        second(batch.loss_mask),
        first(batch.initial_carry),
        first(batch.index),
        first(batch.weight),
    )
