"""Clauses about what an update reads of a rollout. They change entries that must, or must not, affect the update."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlsdk.records import FinalObservations, Observation, Rollout
from rlsdk.tree import leaves, map_tensors
from rlsdk_testing.acting import act_on, extra_of
from rlsdk_testing.batches import (
    EPISODE,
    ROUNDING,
    ROUNDING_OF_ZEROS,
    AnyRollout,
    Learner,
    permuted_distance,
    require_rewards,
    rows_where,
)
from rlsdk_testing.dose_clauses import weights_on
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.rollouts import with_ends, with_other_finals, with_other_last
from rlsdk_testing.row_clauses import in_one_step, twice_as_wide
from rlsdk_testing.subject import Subject, differing
from rlsdk_testing.watched import TINY, Observed

LARGE = 50.0
"""The number that is added to rewards that must not have an effect."""


def _learning(subject: Subject, **changes: object) -> tuple[Learner, AnyRollout, Tensor]:
    """Return a learner, its rollout [T, B] without fillers, and bool [T, B]: whether an episode ended with the row.

    `changes`: settings of the learner, and the kind of its actions, as for `small_agent`.

    Raises:
        NotApplicable: the algorithm does not learn from rewards of rollouts, or no episode ended within the rollout.
    """
    learner = Learner(subject, **changes)
    batch = learner.batch
    if not isinstance(batch, Rollout):
        raise NotApplicable(f"it learns from {type(batch).__name__}, not from a rollout")
    ended = batch.steps.terminated | batch.steps.truncated
    if batch.final_observations is None or not bool(batch.steps.valid.all()) or not bool(ended[:-1].any()):
        raise NotApplicable("no episode ended within its rollout")
    require_rewards(learner, batch)
    return learner, batch, ended


def _unfinished(batch: AnyRollout) -> AnyRollout:
    """Return the rollout, changed so that its last row does not end an episode."""
    finals, steps = batch.final_observations, batch.steps
    assert finals is not None
    before_last = finals.time < len(steps.reward) - 1
    observation: Observation = map_tensors(lambda leaf: leaf[before_last], finals.observation)
    terminated, truncated = steps.terminated.clone(), steps.truncated.clone()
    terminated[-1], truncated[-1] = False, False
    last = replace(batch.last_observation, is_first=torch.zeros_like(batch.last_observation.is_first))
    return replace(
        batch,
        steps=replace(steps, terminated=terminated, truncated=truncated),
        last_observation=last,
        final_observations=FinalObservations(finals.time[before_last], finals.env[before_last], observation),
    )


def _require_bootstrap_at_end(learner: Learner, batch: AnyRollout) -> AnyRollout:
    """Return the rollout, changed so that its last row does not end an episode.

    Raises NotApplicable if the update does not read the observation after the rollout.
    """
    unfinished = _unfinished(batch)
    if not learner.reads(unfinished, with_other_last(unfinished)):
        raise NotApplicable("it does not bootstrap: the observation after the rollout is not read")
    return unfinished


def _require_bootstrap_at_limits(learner: Learner, batch: AnyRollout) -> AnyRollout:
    """Return the rollout, changed so that every episode ends by a time limit.

    Raises NotApplicable if the update does not read the last observations of these episodes.
    """
    limited = with_ends(batch, terminated=False)
    if not learner.reads(limited, with_other_finals(limited)):
        raise NotApplicable("it does not bootstrap: the last observations of truncated episodes are not read")
    return limited


@clause(
    "rollout.time-limits-bootstrap",
    "An algorithm that bootstraps also bootstraps at time limits, from `final_observations`, the last"
    " observations of episodes.",
    "update(): at truncated rows the next value is that of rollout.final_observations."
    " rlsdk.records.successors returns these observations.",
)
def time_limits_bootstrap(subject: Subject) -> None:
    learner, batch, _ = _learning(subject)
    _require_bootstrap_at_end(learner, batch)
    limited = with_ends(batch, terminated=False)
    require(
        learner.reads(limited, with_other_finals(limited)),
        "other final observations of truncated episodes give the same weights, to the bit",
    )


@clause(
    "rollout.last-observation-read",
    "An algorithm that bootstraps at time limits also bootstraps at the end of the rollout, from `last_observation`.",
    "update(): after the last row the next value is that of rollout.last_observation.",
)
def last_observation_read(subject: Subject) -> None:
    learner, batch, _ = _learning(subject)
    _require_bootstrap_at_limits(learner, batch)
    unfinished = _unfinished(batch)
    require(
        learner.reads(unfinished, with_other_last(unfinished)),
        "other observations after the rollout give the same weights, to the bit",
    )


@clause(
    "rollout.last-carry-read",
    "If values depend on a recurrent state, the value after the rollout uses the state at its end, `last_carry`.",
    "update(): after the last row compute the next value from rollout.last_observation and rollout.last_carry.",
)
def last_carry_read(subject: Subject) -> None:
    learner, batch, _ = _learning(subject)
    unfinished = _require_bootstrap_at_end(learner, batch)
    last, carry = unfinished.last_observation, unfinished.last_carry
    other = map_tensors(lambda leaf: leaf + 0.5 if leaf.is_floating_point() else leaf, carry)
    answers = [act_on(learner.agent.parts.policy, last, each, seed=1, deterministic=True) for each in (carry, other)]
    one, two = (extra_of(answer, "value") for answer in answers)
    if one is None or two is None or torch.equal(one, two):
        raise NotApplicable("no entry `value` of what act() adds to a step depends on the carry")
    require(
        learner.reads(unfinished, replace(unfinished, last_carry=other)),
        "another memory after the rollout gives the same weights, to the bit",
    )


@clause(
    "rollout.terminations-are-no-limits",
    "An algorithm that bootstraps uses the next value at time limits, but not at terminations.",
    "update(): set the next value to 0 at steps.terminated, and only there.",
)
def terminations_are_no_limits(subject: Subject) -> None:
    learner, batch, _ = _learning(subject)
    limited = _require_bootstrap_at_limits(learner, batch)
    require(
        learner.reads(with_ends(batch, terminated=True), limited),
        "a rollout with terminations and the same with time limits give the same weights, to the bit",
    )


@clause(
    "rollout.fillers",
    "Rows with `valid` False are resets. Neither their contents nor their number changes the update, whichever terms of the"
    " loss are on.",
    "update(): exclude rows where steps.valid is False from every term, also the entropy, and from the number by which sums are"
    " divided. `PolicyBatch.weight` is 0 there.",
)
def fillers(subject: Subject) -> None:
    # the entropy of a Gaussian is the same in every row, so that other actions are tried as well
    others = [kind for kind in subject.manifest.actions if kind != "Box"][:1]
    for actions in dict.fromkeys([subject.action_kind, *others]):
        # a term whose weight is 0 by default, such as the entropy, would hide that it reads these rows
        _require_fillers_unread(subject, actions=actions, **weights_on(subject))
    _require_fillers_uncounted(subject)


def _require_fillers_unread(subject: Subject, **changes: object) -> None:
    learner, batch, ended = _learning(subject, **changes)
    rows = torch.zeros_like(ended)
    rows[1:] = ended[:-1]
    batch = _with_fillers(batch, rows)
    distance = learner.distance(learner.after(batch), learner.after(_with_other_rows(batch, rows)))
    require(
        distance <= ROUNDING_OF_ZEROS, f"other values in the rows that are not valid change an update by {distance:.1%}"
    )


def _require_fillers_uncounted(subject: Subject) -> None:
    """Check that an environment that was only reset does not make the mean gradient of the others smaller."""
    observed = in_one_step(subject, **weights_on(subject))
    wide = twice_as_wide(observed.batch)
    rows = torch.zeros_like(wide.steps.valid)
    rows[:, rows.shape[1] // 2 :] = True
    wide = _with_fillers(replace(wide, final_observations=observed.batch.final_observations), rows)
    steps = _gradients(observed, observed.batch)
    try:
        diluted = _gradients(observed, wide)
    except Exception:  # as in `batch.duplicates`: it accepts no other number of environments
        return
    for path, gradient in diluted.items():
        one = steps.get(path)
        if one is None or float(one.norm()) < TINY:
            continue
        ratio = float(gradient @ one / (one @ one))
        require(
            abs(ratio - 1.0) < DILUTED,
            f"with as many rows that are not valid, the gradient of {path} is {ratio:.3g} times as large in its direction",
        )


DILUTED = 0.25
"""The largest error of a gradient's size. Where the sequences of a recurrent policy are cut changes it by less."""


def _gradients(observed: Observed, batch: AnyRollout) -> dict[str, Tensor]:
    """Return path of an optimizer -> the gradient [P] of its first step in an update."""
    return {step.optimizer: step.gradient for step in reversed(observed.update(batch))}


def _with_fillers(batch: AnyRollout, rows: Tensor) -> AnyRollout:
    """Return the rollout, changed so that `rows`, bool [T, B], are resets: the next episode begins with the row after."""
    steps = batch.steps
    first = steps.observation.is_first | rows
    first[1:] |= rows[:-1]
    return replace(
        batch,
        steps=replace(
            steps,
            observation=replace(steps.observation, is_first=first),
            reward=steps.reward.masked_fill(rows, 0.0),
            terminated=steps.terminated & ~rows,
            truncated=steps.truncated & ~rows,
            valid=~rows,
        ),
    )


def _with_other_rows(batch: AnyRollout, rows: Tensor) -> AnyRollout:
    """Return the rollout with observations, actions and info of other rows, and large rewards, where `rows` [T, B] is True.

    The extras stay, because they may contain the carry after the previous step.
    """
    steps = batch.steps
    changed = replace(steps, reward=steps.reward + LARGE)
    other = map_tensors(lambda leaf: leaf.roll(1, 0), changed)
    new = map_tensors(lambda yes, no: rows_where(rows, yes, no), other, steps)
    observation = replace(new.observation, is_first=steps.observation.is_first)
    return replace(
        batch, steps=replace(steps, observation=observation, action=new.action, reward=new.reward, info=new.info)
    )


@clause(
    "rollout.episodes-permuted",
    "The result of an update does not depend on the order of complete episodes or on their environments. The"
    " reward of one episode does not change the advantages of another.",
    "update(): flatten all columns in the same order, and end the traces of advantages at terminated and"
    " truncated rows.",
)
def episodes_permuted(subject: Subject) -> None:
    learner, batch, ended = _learning(subject)
    if leaves(batch.initial_carry):
        raise NotApplicable("its policy has a memory, which is learned from consecutive rows")
    length, envs = ended.shape
    if length % EPISODE or not bool(ended[EPISODE - 1 :: EPISODE].all()):
        raise NotApplicable(f"its rollouts of {length} steps are not made of whole episodes of {EPISODE} steps")
    terminated = with_ends(batch, terminated=True)
    if learner.reads(terminated, with_other_finals(terminated)):
        raise NotApplicable("it learns from what terminations led to, so from more than rewards")
    blocks = torch.randperm(length // EPISODE * envs, generator=torch.Generator().manual_seed(3))
    _require_same(learner, batch, _rows_of(blocks, length, envs), "the same episodes in another order")
    if length >= 4 * EPISODE:
        uneven, order = _of_two_lengths(batch), _exchanged(length, envs)
        _require_same(learner, uneven, order, "the same episodes, of two lengths, in another order")


def _require_same(learner: Learner, batch: AnyRollout, order: Tensor, what: str) -> None:
    by_time, by_env = order.flatten(), _by_env(order, *order.shape)
    permuted = _reordered(batch, order)
    distance = min(permuted_distance(learner, batch, permuted, where) for where in (by_time, by_env))
    require(distance <= ROUNDING, f"{what} change an update by {distance:.1%}")


def _of_two_lengths(batch: AnyRollout) -> AnyRollout:
    """Return the rollout, changed so that one episode of each environment is twice as long, with random large info.

    In even columns the first two episodes are joined, in odd columns the second and the third.
    """
    steps, finals = batch.steps, batch.final_observations
    assert finals is not None
    joined = torch.zeros_like(steps.terminated)
    joined[EPISODE - 1, ::2], joined[2 * EPISODE - 1, 1::2] = True, True
    stay = ~joined[finals.time, finals.env]
    observation: Observation = map_tensors(lambda leaf: leaf[stay], finals.observation)
    changed = replace(
        steps,
        terminated=steps.terminated & ~joined,
        truncated=steps.truncated & ~joined,
        observation=replace(steps.observation, is_first=steps.observation.is_first & ~joined.roll(1, 0)),
    )
    return _with_info(
        replace(
            batch,
            steps=changed,
            final_observations=FinalObservations(finals.time[stay], finals.env[stay], observation),
        ),
        seed=1,
    )


def _exchanged(length: int, envs: int) -> Tensor:
    """Return the row numbers, int64 [T, B], of an order in which odd columns also begin with the longer episode."""
    order = torch.arange(length * envs).view(length, envs).clone()
    order[: 3 * EPISODE, 1::2] = order[: 3 * EPISODE, 1::2].roll(-EPISODE, 0)
    return order


def _with_info(batch: AnyRollout, seed: int) -> AnyRollout:
    """Return the rollout with random entries of info, from 0 to `LARGE`."""
    generator, steps = torch.Generator().manual_seed(seed), batch.steps
    info = {name: LARGE * torch.rand(value.shape, generator=generator) for name, value in steps.info.items()}
    return replace(batch, steps=replace(steps, info=info))


@clause(
    "rollout.info-at-all-ends",
    "An algorithm that learns from entries of info learns from them also in episodes that a time limit ends.",
    "update(): an episode ends where steps.terminated | steps.truncated.",
)
def info_at_all_ends(subject: Subject) -> None:
    learner, batch, _ = _learning(subject)
    if not batch.steps.info:
        raise NotApplicable("it declares no entries of info")
    reading = list[set[str]]()
    for terminated in (True, False):
        rollout = with_ends(batch, terminated=terminated)
        states = [dict(learner.after(_with_info(rollout, seed))) for seed in (1, 2)]
        reading.append(set(differing(*states)))
    never = sorted(reading[0] - reading[1])
    require(not never, f"other entries of info change {never[:5]} where episodes terminate, and not at time limits")


def _rows_of(blocks: Tensor, length: int, envs: int) -> Tensor:
    """Return the number t * B + b of the row at each place, int64 [T, B], if episodes are in the order `blocks`."""
    rows = torch.arange(length * envs).view(length // EPISODE, EPISODE, envs)
    episodes = rows.movedim(1, -1).reshape(-1, EPISODE)[blocks]
    return episodes.view(length // EPISODE, envs, EPISODE).movedim(-1, 1).reshape(length, envs)


def _by_env(order: Tensor, length: int, envs: int) -> Tensor:
    """Return the order as int64 [T * B] for flat rows that are sorted by environment, then by time."""
    number = torch.arange(length * envs).view(envs, length).T.flatten()
    return number[order.T.flatten()]


def _reordered(batch: AnyRollout, order: Tensor) -> AnyRollout:
    """Return the rollout with its rows in the order `order`, int64 [T, B]; final observations move with their rows."""
    length, envs = order.shape
    finals = batch.final_observations
    assert finals is not None
    place = torch.empty(length * envs, dtype=torch.int64)
    place[order.flatten()] = torch.arange(length * envs)
    now = place[finals.time * envs + finals.env]
    in_order = now.argsort()
    observation: Observation = map_tensors(lambda leaf: leaf[in_order], finals.observation)
    now = now[in_order]
    steps = map_tensors(lambda leaf: leaf.flatten(0, 1)[order.flatten()].unflatten(0, (length, envs)), batch.steps)
    return replace(
        batch, steps=steps, final_observations=FinalObservations(now // envs, now % envs, observation), episodes=()
    )
