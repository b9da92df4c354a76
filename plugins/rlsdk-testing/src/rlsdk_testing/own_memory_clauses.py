"""Clauses about replay buffers that sample a record defined by the plugin, whose fields have no meaning for the kit.

They change rollouts before these are stored, and check whether the samples, or what is learned from them, change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor

from rlsdk.interfaces import Buffer
from rlsdk.records import Rollout, Sequences, Transitions
from rlsdk.tree import map_tensors
from rlsdk_testing.batches import AnyRollout, rows_where
from rlsdk_testing.buffer_clauses import LONGEST, MIXED, capacity_for
from rlsdk_testing.experience import FilledMemory
from rlsdk_testing.kit import clause, require
from rlsdk_testing.memory_faults import tensors_in
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.rollouts import with_ends
from rlsdk_testing.subject import Subject, differing, flat_state

ENVS, STEPS = 2, 40
SAMPLED, UPDATES = 64, 4
FULL = 24
"""The number of rows of a small buffer."""
AFTER = 8
"""After the buffer is full, it gets as many further steps as this multiple of its size."""
Change = Callable[[AnyRollout], AnyRollout]


class _Altered:
    """A buffer that changes rollouts by `change` before it passes them to another buffer."""

    def __init__(self, memory: Buffer[object, object], change: Change) -> None:
        self.memory, self.change = memory, change

    def extend(self, item: Rollout[object, object]) -> None:
        self.memory.extend(self.change(item))


def _two_agents(subject: Subject, change: Change, *, fillers: bool = False) -> tuple[FilledMemory, FilledMemory]:
    """Return the buffers of two equal agents. Both got the same rollouts, but those of the second were changed."""
    one, two = (FilledMemory(subject, ENVS, fillers=fillers) for _ in range(2))
    while one.steps < STEPS or (not len(one.buffer) and one.steps < LONGEST):
        one.take(STEPS, MIXED, also=_Altered(two.buffer, change))  # type: ignore[arg-type]  # it only extends
    return one, two


def _reads(subject: Subject, change: Change, *, before: Change = lambda rollout: rollout) -> bool:
    """Return whether samples differ if rollouts are changed by `before` and then `change`, instead of `before` alone."""
    samples = []
    for alter in (before, lambda rollout: change(before(rollout))):
        memory = _two_agents(subject, alter)[1]
        samples.append(tensors_in(memory.sample(SAMPLED)))
    return not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(*samples, strict=True))


def _require_own(subject: Subject) -> None:
    """Raise NotApplicable if the buffer samples records of the SDK: other clauses check the rows of these."""
    batch = _two_agents(subject, lambda rollout: rollout)[0].sample(2)
    if isinstance(batch, Transitions | Sequences):
        raise NotApplicable(f"the memory samples {type(batch).__name__}, which other clauses look at row by row")


@clause(
    "buffer.fillers",
    "The contents of rows with `valid` False do not change what is learned from a buffer's samples.",
    "extend(): do not store rows where steps.valid is False, or store the column `valid` and multiply losses by it.",
)
def fillers(subject: Subject) -> None:
    memories = _two_agents(subject, _other_fillers, fillers=True)
    states = []
    for memory in memories:
        agent, generator = memory.agent, Generator().manual_seed(2)
        for _ in range(UPDATES):
            agent.parts.algorithm.update(agent.parts.sample(SAMPLED, generator), progress=0.5)
        states.append(flat_state(agent))
    wrong = differing(*states)
    require(
        not wrong, f"other rewards and actions in rows that are not valid change {wrong[:5]} after {UPDATES} updates"
    )


def _other_fillers(rollout: AnyRollout) -> AnyRollout:
    """Return the rollout with other actions and rewards in rows that are not valid.

    Observations stay, because those of padding rows are the last observations of episodes.
    """
    steps = rollout.steps
    action = map_tensors(lambda leaf: rows_where(~steps.valid, leaf.roll(1, 0), leaf), steps.action)
    return replace(rollout, steps=replace(steps, reward=steps.reward + 50.0 * ~steps.valid, action=action))


@clause(
    "buffer.what-followed",
    "This is about buffers that sample a custom record. If the record distinguishes terminations from time"
    " limits, it has the next observation of each step, also at time limits. If it has next observations, it"
    " distinguishes them.",
    "extend(): store rlsdk.records.successors(rollout), and steps.terminated, not the end of every episode.",
)
def what_followed(subject: Subject) -> None:
    _require_own(subject)
    if not _reads(subject, _other_rewards):
        raise NotApplicable("its memory holds no rewards")
    distinguishes = _reads(subject, lambda rollout: with_ends(rollout, terminated=True), before=_limited)
    follows = _reads(subject, _other_last)
    if not distinguishes and not follows:
        raise NotApplicable("its memory holds nothing of what followed a step")
    require(
        distinguishes,
        "it stores what followed a step, and samples are the same where episodes terminated and at time limits",
    )
    require(
        follows,
        "it distinguishes terminations from time limits, and what the last steps of rollouts led to is not stored",
    )
    require(
        _reads(subject, _other_finals, before=_limited),
        "it stores what followed a step, but not the last observations of episodes that a time limit ended",
    )


def _limited(rollout: AnyRollout) -> AnyRollout:
    return with_ends(rollout, terminated=False)


def _other_rewards(rollout: AnyRollout) -> AnyRollout:
    return replace(rollout, steps=replace(rollout.steps, reward=rollout.steps.reward + 1.0))


def _other_last(rollout: AnyRollout) -> AnyRollout:
    last = rollout.last_observation
    return replace(rollout, last_observation=replace(last, features=_shifted(last.features)))


def _other_finals(rollout: AnyRollout) -> AnyRollout:
    finals = rollout.final_observations
    if finals is None:
        return rollout
    observation = replace(finals.observation, features=_shifted(finals.observation.features))
    return replace(rollout, final_observations=replace(finals, observation=observation))


def _shifted(features: object) -> object:
    return map_tensors(lambda leaf: leaf + 0.5, features)


@clause(
    "buffer.full-takes-new",
    "A full buffer that samples a custom record stores new steps: they soon replace most of the steps that it"
    " held when it became full. It samples as many steps as then, wherever it writes next.",
    "extend(): overwrite the oldest row, and advance the position by one with every row.",
)
def full_takes_new(subject: Subject) -> None:
    if "buffer_size" not in subject.settings():
        raise NotApplicable("the capacity is not a setting called buffer_size")
    _require_own(subject)
    capacity = capacity_for(subject, ENVS, FULL)
    memory = FilledMemory(subject, ENVS, {"buffer_size": capacity})
    memory.take(capacity, MIXED)
    before = _rows(memory, capacity)
    memory.take(AFTER * capacity, MIXED)
    now = _rows(memory, capacity)
    left = len(before & now)
    require(
        2 * left < len(now),
        f"of {len(now)} rows {left} are those that the memory held when it was full, {AFTER * capacity * ENVS} steps ago",
    )
    memory.take(max(1, capacity // 3), MIXED)
    later = _rows(memory, capacity)
    require(
        len(later) >= 0.9 * len(before),
        f"a full memory sampled {len(before)} different rows, and {len(later)} after some further steps",
    )


def _rows(memory: FilledMemory, capacity: int) -> set[bytes]:
    """Return the rows that the buffer samples, as bytes. Raises NotApplicable if samples do not consist of rows."""
    size = 20 * capacity
    found = [leaf for leaf in tensors_in(memory.sample(size)) if leaf.shape[:1] == (size,)]
    if not found:
        raise NotApplicable("its samples have no row for each step")
    return {b"".join(_bytes(leaf[i]) for leaf in found) for i in range(size)}


def _bytes(value: Tensor) -> bytes:
    return value.detach().contiguous().numpy().tobytes()
