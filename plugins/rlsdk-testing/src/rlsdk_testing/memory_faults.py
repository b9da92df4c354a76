"""Finds errors in a sampled batch by comparing it with the steps that the replay buffer was given."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlsdk.records import Observation, Sequences, Transitions
from rlsdk.tree import leaves
from rlsdk_testing.experience import FilledMemory, Key, Step, key_of, length_of, mask_of, reward_of

At = int | tuple[int, int]
"""The index of a row: its number, or (time, column)."""
Beside = tuple[object, Mapping[str, Tensor], Mapping[str, Tensor]]
"""(actions, extras, info) of a batch."""


def steps_ahead(batch: Transitions) -> int:
    """Return the largest number of steps that a transition of the batch spans."""
    pairs = zip(keys_in(batch), (key_of(row) for row in batch.next_observation.features), strict=True)
    return max((after[2] - key[2] for key, after in pairs if after[:2] == key[:2]), default=1)


def rows_fault(memory: FilledMemory, batch: Transitions) -> str | None:
    """Return the first error in a batch of transitions; None if there is none.

    All transitions must span the same number of steps, except at ends of episodes and in the newest rows.
    """
    ahead = max(1, steps_ahead(batch))
    for i in range(len(batch.reward)):
        if (fault := _row_fault(memory, batch, i, ahead)) is not None:
            return fault
    return None


def _row_fault(memory: FilledMemory, batch: Transitions, i: int, ahead: int) -> str | None:
    key, after = key_of(batch.observation.features[i]), key_of(batch.next_observation.features[i])
    what = named(key)
    if (fault := _unknown(memory, key)) is not None:
        return fault
    count = after[2] - key[2]
    if after[:2] != key[:2] or count < 1 or (*key[:2], after[2] - 1) not in memory.truth:
        return f"{what} led to {named(after)}, not to step {key[2] + 1} of its own episode"
    last = memory.truth[(*key[:2], after[2] - 1)]
    if count > ahead or (count < ahead and not last.ended and last.age != _newest(memory, key[0])):
        return f"{what} looks {count} steps ahead, not {ahead}, and its episode does not end there"
    if (gamma := memory.gamma) is not None:
        reward = sum(gamma**k * reward_of((key[0], key[1], key[2] + k)) for k in range(count))
        if abs(float(batch.reward[i]) - reward) > 1e-4 * max(1.0, reward):
            return f"{what} has the reward {float(batch.reward[i]):.4g}, not {reward:.4g}"
        discount = 0.0 if last.terminated else gamma**count
        if abs(float(batch.discount[i]) - discount) > 1e-5:
            kind = "a termination" if last.terminated else "a time limit" if last.ended else "no end of its episode"
            return f"{what}, {kind}, has the discount {float(batch.discount[i]):.4g}, not {discount:.4g}"
    masked = memory.agent.spec.action_masks != "ignored"
    return (
        _seen_fault(memory, batch.observation, i, key, masked, first=True)
        or _stored_fault(memory, (batch.action, batch.extras, batch.info), i, key)
        or (None if last.terminated else _seen_fault(memory, batch.next_observation, i, after, masked, first=False))
    )


def _unknown(memory: FilledMemory, key: Key) -> str | None:
    """Return why `key` cannot be the observation of a step in the buffer; None if it can."""
    step = memory.truth.get(key)
    if step is not None:
        room = -(-len(memory.buffer) // memory.envs.num_envs)
        oldest = memory.steps - room
        old = step.age < oldest and not memory.envs.fillers
        return f"{named(key)} is older than the {room} steps of each environment that len() counts" if old else None
    if key[2] == length_of(key[0], key[1]):
        return f"the last observation of an episode, of a padding row (valid is False), was sampled: {named(key)}"
    return f"an observation was sampled that was never stored: {named(key)}"


def _newest(memory: FilledMemory, env: int) -> int:
    """Return the age of the newest valid step of an environment."""
    return max(step.age for key, step in memory.truth.items() if key[0] == env)


def _seen_fault(memory: FilledMemory, seen: Observation, i: At, key: Key, masked: bool, *, first: bool) -> str | None:
    """Return the error in the mask of an observation at `i`, and with `first` also in its `is_first`; None if correct."""
    if first and bool(seen.is_first[i]) != (key[2] == 0):
        return f"{named(key)} has is_first = {bool(seen.is_first[i])}"
    if not masked or not memory.envs.sizes:
        return None
    expected = mask_of(key, memory.envs.sizes)
    if seen.action_mask is None or not torch.equal(seen.action_mask[i].bool(), expected):
        found = None if seen.action_mask is None else seen.action_mask[i].int().tolist()
        return f"{named(key)} has the action mask {found}, not {expected.int().tolist()}"
    return None


def _stored_fault(memory: FilledMemory, stored: Beside, i: At, key: Key) -> str | None:
    """Return the first error in the action, the extras or the info of row `i`; None if all are correct."""
    step: Step = memory.truth[key]
    action, extras, info = stored
    own = [leaf[i] for leaf in leaves(action)]
    if any(not torch.equal(a.double().cpu(), b.double().cpu()) for a, b in zip(own, step.action, strict=True)):
        return f"{named(key)} has the action {own}, not {list(step.action)}"
    for name in set(extras) & set(step.extras):
        if not torch.equal(extras[name][i], step.extras[name]):
            return f"{named(key)} has extras[{name!r}] = {extras[name][i].tolist()}, not {step.extras[name].tolist()}"
    for n, name in enumerate(memory.info):
        if name in info and float(info[name][i]) != reward_of(key) + 0.25 * (n + 1):
            return f"{named(key)} has info[{name!r}] = {float(info[name][i])} of another step"
    return None


def sequences_fault(memory: FilledMemory, batch: Sequences[object]) -> str | None:
    """Return the first error in a batch of sequences [T, N]; None if there is none."""
    found = (_sequence_fault(memory, batch, n) for n in range(batch.loss_mask.shape[1]))
    return next((fault for fault in found if fault is not None), None)


def _sequence_fault(memory: FilledMemory, batch: Sequences[object], n: int) -> str | None:
    column = batch.steps.valid[:, n]
    if not bool(batch.loss_mask[:, n].any()) and bool(column.any()) and not memory.envs.fillers:
        return "a sequence has no row to learn from: loss_mask is False everywhere"
    if bool((batch.loss_mask[:, n] & ~column).any()):
        return "loss_mask is True in rows that are not valid"
    learned = batch.loss_mask[:, n][column]
    if bool((learned[:-1] & ~learned[1:]).any()):
        return "loss_mask is False after rows where it is True: only the first rows may be for the carry alone"
    before: Key | None = None
    for t in range(len(column)):
        if not bool(column[t]):
            continue
        key = key_of(batch.steps.observation.features[t, n])
        fault = _unknown(memory, key) or _order_fault(memory, before, key) or _step_fault(memory, batch, (t, n), key)
        if fault is not None:
            return fault
        before = key
    return _carry_fault(memory, batch, n)


def _order_fault(memory: FilledMemory, before: Key | None, key: Key) -> str | None:
    """Return the error if step `key` does not follow step `before`; None if it does.

    The first step of the environment's next episode follows the end of an episode.
    """
    if before is None:
        return None
    ended = memory.truth[before].ended
    follows = (before[0], before[1] + 1, 0) if ended else (*before[:2], before[2] + 1)
    return None if key == follows else f"in a sequence {named(before)} is followed by {named(key)}"


def _step_fault(memory: FilledMemory, batch: Sequences[object], at: tuple[int, int], key: Key) -> str | None:
    steps, step = batch.steps, memory.truth[key]
    after = key_of(batch.next_observation.features[at])
    if after != (*key[:2], key[2] + 1):
        return f"{named(key)} led to {named(after)}, not to the next step of its own episode"
    if float(steps.reward[at]) != reward_of(key):
        return f"{named(key)} has the reward {float(steps.reward[at])}, not {reward_of(key)}"
    flags = bool(steps.terminated[at]), bool(steps.truncated[at])
    if flags != (step.terminated, step.ended and not step.terminated):
        return f"{named(key)} has terminated, truncated = {flags}"
    discount = memory.gamma if memory.gamma is not None and not step.terminated else 0.0
    if (memory.gamma is not None or step.terminated) and abs(float(batch.discount[at]) - discount) > 1e-6:
        return f"{named(key)} has the discount {float(batch.discount[at])}, not {discount}"
    masked = memory.agent.spec.action_masks != "ignored"
    return _seen_fault(memory, steps.observation, at, key, masked, first=True) or _stored_fault(
        memory, (steps.action, steps.extras, steps.info), at, key
    )


def _carry_fault(memory: FilledMemory, batch: Sequences[object], n: int) -> str | None:
    """Return the error in the initial carry of sequence `n`; None if it is correct."""
    if batch.initial_carry is None or not bool(batch.steps.valid[0, n]):
        return None
    key = key_of(batch.steps.observation.features[0, n])
    found = [leaf[n] for leaf in leaves(batch.initial_carry) if leaf.dim()]
    expected = memory.carries.get(key)
    if expected is None or not all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)):
        return f"the carry of a sequence that begins with {named(key)} is not that of the time"
    return None


def keys_in(batch: Transitions | Sequences[object]) -> list[Key]:
    """Return the keys of the steps in a batch."""
    if isinstance(batch, Transitions):
        return [key_of(row) for row in batch.observation.features]
    return [key_of(row) for row in batch.steps.observation.features[batch.steps.valid]]


def tensors_in(batch: object) -> list[Tensor]:
    """Return the tensors [N, ..] of a record, also of a record that a plugin defines."""
    try:
        return leaves(batch)
    except TypeError:
        held = batch if isinstance(batch, dict) else getattr(batch, "__dict__", {})
        return [value for value in held.values() if isinstance(value, Tensor)]


def named(key: Key) -> str:
    """Return the step as text for messages."""
    env, episode, step = key
    return f"step {step} of episode {episode} of environment {env}"
