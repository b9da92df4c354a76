"""Clauses about replay buffers, which sample transitions, sequences or records of the plugin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from rlsdk.errors import SettingsError
from rlsdk.interfaces import Buffer, BufferAbilities, ability
from rlsdk.records import Sequences, Transitions
from rlsdk.tree import flatten
from rlsdk_testing.experience import FilledMemory
from rlsdk_testing.kit import clause, require
from rlsdk_testing.memory_faults import keys_in, rows_fault, sequences_fault, steps_ahead, tensors_in
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.strategies import examples
from rlsdk_testing.subject import Subject

SAMPLED = 64
PER_ROW = 150
"""The number of samples per stored row, for counting how often each row is sampled."""
LONGEST = 400
"""The number of steps after which every buffer can be sampled."""
MIXED = (1, 3, 2)
"""The lengths of collected rollouts, which are repeated in this order."""


def capacity_for(subject: Subject, num_envs: int, wanted: int) -> int:
    """Return `wanted`, or its first double that the buffer accepts: a buffer of sequences needs room for a sequence."""
    for _ in range(8):
        try:
            subject.chain_agent(num_envs, buffer_size=wanted)
        except SettingsError:
            wanted *= 2
        else:
            break
    return wanted


def sharing(subject: Subject, shared: bool) -> dict[str, object]:
    """Return the setting `optimize_memory_usage` with the value `shared`; empty if the algorithm does not have it."""
    return {"optimize_memory_usage": shared} if "optimize_memory_usage" in subject.settings() else {}


def _capacity(subject: Subject, num_envs: int, wanted: int) -> dict[str, object]:
    """Return a small value for the setting `buffer_size`; empty if the algorithm does not have it."""
    if "buffer_size" not in subject.settings():
        return {}
    return {"buffer_size": capacity_for(subject, num_envs, wanted)}


def _room(changes: dict[str, object], num_envs: int) -> int:
    """Return the steps per environment after which a buffer with these settings is full; 20 without `buffer_size`."""
    size = changes.get("buffer_size")
    return size // num_envs if isinstance(size, int) else 20


def _kind(subject: Subject) -> type[object]:
    """Return the class of the batches that the buffer samples. Raises NotApplicable if the algorithm has no buffer."""
    memory = FilledMemory(subject, 1)
    while not len(memory.buffer) and memory.steps < LONGEST:
        memory.take(20)
    require(len(memory.buffer) > 0, f"after {memory.steps} steps len() is 0")
    return type(memory.sample(2))


def _require_kind(subject: Subject, kind: type[object]) -> None:
    """Raise NotApplicable if the buffer does not sample records of the class `kind`."""
    found = _kind(subject)
    if issubclass(found, kind):
        return
    if issubclass(found, Transitions | Sequences):
        raise NotApplicable(f"the memory samples {found.__name__}, not {kind.__name__}")
    raise NotApplicable(
        f"the memory samples {found.__name__}, a record of its own, whose meaning only the plugin knows: test it there"
    )


@clause(
    "buffer.rows-are-true",
    "Sampled Transitions are stored steps. Observation, action, reward, next observation, discount (0 at"
    " terminations only), masks, extras and info belong to one step, or to n_steps of one episode. Filler rows"
    " and overwritten rows are never sampled.",
    "extend(): take next observations from rlsdk.records.successors(rollout), store discount = gamma *"
    " ~terminated, and do not store rows whose valid is False. sample(): index all columns by the same rows.",
)
def rows_are_true(subject: Subject) -> None:
    _require_kind(subject, Transitions)
    rooms = {num_envs: _capacity(subject, num_envs, 40) for num_envs in (1, 2, 3)}

    @examples
    @given(st.integers(1, 3), st.integers(1, 60), st.booleans(), st.booleans(), st.sampled_from([1, 3]))
    def check(num_envs: int, steps: int, shared: bool, fillers: bool, n_steps: int) -> None:
        changes = {**rooms[num_envs], **sharing(subject, shared), "n_steps": n_steps}
        memory = FilledMemory(subject, num_envs, changes, fillers=fillers)
        memory.take(steps, MIXED)
        problem = rows_fault(memory, _rows(memory, SAMPLED)) if len(memory.buffer) else None
        what = f"{num_envs} environments, {steps} steps, shared={shared}, fillers={fillers}, n_steps={n_steps}"
        require(problem is None, f"{what}: {problem}")

    check()


@clause(
    "buffer.sequences-are-true",
    "Sampled Sequences are consecutive stored steps of one environment, with all columns of each step."
    " is_first, terminated and truncated mark the ends of episodes. valid and loss_mask are False for padding"
    " rows. Initial recurrent states are those at the first step.",
    "sample(): take rows of one environment in the order in which they were stored, never across the newest"
    " row of the ring. Set valid and loss_mask to False in rows that must not be learned from.",
)
def sequences_are_true(subject: Subject) -> None:
    _require_kind(subject, Sequences)
    rooms = {num_envs: _capacity(subject, num_envs, 40) for num_envs in (1, 2, 3)}

    @examples
    @given(st.integers(1, 3), st.integers(1, 70), st.booleans(), st.booleans())
    def check(num_envs: int, steps: int, shared: bool, fillers: bool) -> None:
        changes = {**rooms[num_envs], **sharing(subject, shared)}
        memory = FilledMemory(subject, num_envs, changes, fillers=fillers)
        memory.take(steps, (1,))
        if not len(memory.buffer):  # sequences may need more steps
            return
        batch = memory.sample(SAMPLED)
        assert isinstance(batch, Sequences)
        problem = sequences_fault(memory, batch)
        what = f"{num_envs} environments, {steps} steps, shared={shared}, fillers={fillers}"
        require(problem is None, f"{what}: {problem}")

    check()


@clause(
    "buffer.length",
    "len() is 0 at first, never decreases, and never exceeds the number of stored steps or the capacity. A"
    " buffer of Transitions counts every transition until it is full.",
    "__len__(): return the number of steps that can be sampled now.",
)
def length(subject: Subject) -> None:
    if "buffer_size" not in subject.settings():
        raise NotApplicable("the capacity is not a setting called buffer_size")
    counts_rows = issubclass(_kind(subject), Transitions)
    capacity = capacity_for(subject, 2, 12)
    memory, before = FilledMemory(subject, 2, {"buffer_size": capacity}), 0
    require(len(memory.buffer) == 0, f"len() of a new memory is {len(memory.buffer)}")
    for steps in (1, capacity // 4, capacity // 2, 5 * capacity // 2):
        memory.take(steps - memory.steps)
        found, most = len(memory.buffer), min(2 * memory.steps, capacity)
        exact = found == most if counts_rows else before <= found <= most
        require(
            exact, f"after {memory.steps} steps of 2 environments, capacity {capacity}, len() is {found}, not {most}"
        )
        before = found
    require(before > 0, "a full memory has the length 0")


@clause(
    "buffer.size-known-first",
    "bytes_required() works before the first row is stored. It is at least the memory that the rows take when"
    " the buffer is full, and at most twice as much.",
    "bytes_required(): add up the bytes of all columns for the whole capacity, including next observations and masks.",
)
def size_known_first(subject: Subject) -> None:
    small = _capacity(subject, 2, 300)
    memory = FilledMemory(subject, 2, small)
    needed = memory.buffer.bytes_required()
    require(isinstance(needed, int) and needed > 0, f"bytes_required() is {needed!r}")
    memory.take(200, MIXED)
    require(memory.buffer.bytes_required() == needed, "bytes_required() changed once rows were stored")
    stored = flatten(memory.buffer.state_dict()).values()
    taken = sum(leaf.nbytes for leaf in stored if isinstance(leaf, torch.Tensor))
    enough = taken <= 1.01 * needed + 1024
    require(enough, f"bytes_required() returned {needed}, and the memory stores {taken} bytes")
    require(not small or 2 * taken >= needed, f"bytes_required() returned {needed}, a full memory stores {taken} bytes")


@clause(
    "buffer.samples-are-copies",
    "A change to a sampled batch does not change the buffer. Extending the buffer does not change the batch.",
    "sample(): index rows with a tensor (rows[index]), which copies. A slice is a view of the buffer's memory.",
)
def samples_are_copies(subject: Subject) -> None:
    memory = FilledMemory(subject, 1, _capacity(subject, 1, 24))
    memory.take(24)
    before, batch = deepcopy(memory.sample(32)), memory.sample(32)
    for leaf in tensors_in(batch):
        leaf.fill_(1)
    require(_equal(before, memory.sample(32)), "overwriting a sampled batch changed what is sampled next")
    given = memory.sample(32)
    before = deepcopy(given)
    memory.take(48)
    require(_equal(before, given), "extending the memory changed a batch that it had given")


def _equal(one: object, two: object) -> bool:
    pairs = zip(tensors_in(one), tensors_in(two), strict=True)
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


@clause(
    "buffer.sampling",
    "sample() uses only the given generator and reaches every stored step. Single steps are equally probable"
    " before prioritize() is called; afterwards steps with larger errors are more probable.",
    "sample(): draw indices with generator=generator from all stored rows: also the first, the last, and those"
    " of every environment. prioritize(): store a priority that grows with the error.",
)
def sampling(subject: Subject) -> None:
    for changes in _memories(subject):
        memory = FilledMemory(subject, 2, changes)
        memory.take(_room(changes, 2) * 3 // 2, MIXED)
        state = torch.random.get_rng_state()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            one, moved = memory.sample(SAMPLED), not torch.equal(torch.random.get_rng_state(), _seeded(5))
            two, other = memory.sample(SAMPLED), memory.sample(SAMPLED, seed=2)
        torch.random.set_rng_state(state)
        require(not moved, "sample() moved torch's global random state")
        require(_equal(one, two), "the same generator gave two different samples")
        require(not _equal(one, other), "two generators gave the same sample")
        if isinstance(one, Transitions | Sequences):
            _frequencies(memory, isinstance(one, Transitions))
        if isinstance(one, Transitions):
            _priorities(memory)


def _seeded(seed: int) -> torch.Tensor:
    return torch.Generator().manual_seed(seed).get_state()


def _memories(subject: Subject) -> Iterator[dict[str, object]]:
    """Yield the settings of the buffers to check: a small one, and a prioritized one if the algorithm accepts it."""
    small = {**_capacity(subject, 2, 24), **({"n_steps": 1} if issubclass(_kind(subject), Transitions) else {})}
    yield small
    prioritized: dict[str, Any] = {**small, "replay_buffer_class": "prioritized"}
    if "replay_buffer_class" not in subject.settings(replay_buffer_class="prioritized"):
        return
    with suppress(SettingsError):  # the algorithm may have another buffer and refuse this one
        subject.chain_agent(2, **prioritized)
        yield prioritized


def _frequencies(memory: FilledMemory, single: bool) -> None:
    """Check that every stored step is sampled, and that single steps are sampled equally often."""
    rows = len(memory.buffer)
    batch = memory.sample(PER_ROW * rows)
    assert isinstance(batch, Transitions | Sequences)
    ahead = steps_ahead(batch) if isinstance(batch, Transitions) else 1
    oldest, newest = memory.steps - rows // memory.envs.num_envs, memory.steps - ahead  # newer ones may have to wait
    # sequences may begin only where a rollout began, and the oldest rollout may be partly overwritten
    if isinstance(batch, Sequences):
        oldest, newest = oldest + max(MIXED) - 1, newest - (max(MIXED) - 1)
    stored = [key for key, step in memory.truth.items() if oldest <= step.age <= newest]
    counts = Counter(keys_in(batch))
    missing = [key for key in stored if not counts[key]]
    require(not missing, f"of {rows} stored steps {len(missing)} were never sampled, such as {missing[:2]}")
    if single and ahead == 1:
        spread = 6 * PER_ROW**0.5  # six standard deviations
        wrong = {key: counts[key] for key in stored if abs(counts[key] - PER_ROW) > spread}
        require(not wrong, f"steps were sampled {list(wrong.values())[:3]} times where {PER_ROW} are to be expected")


def _rows(memory: FilledMemory, size: int, seed: int = 1) -> Transitions:
    batch = memory.sample(size, seed)
    assert isinstance(batch, Transitions)
    return batch


def _priorities(memory: FilledMemory) -> None:
    """Check that a step with a large error is sampled more often and has a smaller importance weight."""
    prioritized = ability(memory.buffer, BufferAbilities, "prioritize")
    if prioritized is None:
        return
    index = torch.tensor(sorted({at for seed in range(8) for at in _rows(memory, SAMPLED, seed).index.tolist()}))
    error = torch.full((len(index),), 0.1)
    error[0] = 10.0
    prioritized.prioritize(index, error)
    batch = _rows(memory, PER_ROW * len(index))
    large = batch.index == index[0]
    share = float(large.float().mean()) * len(index)
    require(share > 2.0, f"a step with 100 times the error of the others is sampled {share:.2f} times as often")
    if batch.weight is not None and bool(large.any()):
        heavier = float(batch.weight[large].max()) > float(batch.weight[~large].min())
        require(not heavier, "the step that is sampled most often has not the smallest importance weight")


@clause(
    "buffer.state-round-trip",
    "A buffer loaded from state_dict() gives the same samples, now and after further steps, also after the"
    " oldest rows were overwritten.",
    "state_dict(): include the rows, the position in the ring and every count. load_state_dict(): copy them,"
    " so that two buffers share no tensor.",
)
def state_round_trip(subject: Subject) -> None:
    room = _room(_capacity(subject, 2, 30), 2)
    for shared in {bool(sharing(subject, True)), False}:
        changes = {**_capacity(subject, 2, 30), **sharing(subject, shared)}
        for steps in (room // 2 + 1, room * 5 // 2 + 1):
            memory = FilledMemory(subject, 2, changes)
            memory.take(steps, MIXED)
            other = subject.chain_agent(2, 4, **changes).parts.buffer
            assert other is not None
            other.load_state_dict(memory.buffer.state_dict())
            what = f"after {steps} steps, shared={shared}"
            require(len(memory.buffer) == len(other), f"{what}: {len(memory.buffer)} rows became {len(other)}")
            _require_same(memory, other, f"{what}: samples differ after the round trip")
            memory.take(room // 3 + 1, also=other)
            _require_same(memory, other, f"{what}: samples differ once both took the same further steps")
            before = deepcopy(other.sample(SAMPLED, torch.Generator().manual_seed(3)))
            memory.take(room // 3 + 1)
            after = other.sample(SAMPLED, torch.Generator().manual_seed(3))
            require(_equal(before, after), f"{what}: extending one memory changed the other")


def _require_same(memory: FilledMemory, other: Buffer[object, object], message: str) -> None:
    batches = [each.sample(SAMPLED, torch.Generator().manual_seed(3)) for each in (memory.buffer, other)]
    require(_equal(*batches), message)
