"""Sequences from a replay buffer equal those in plain lists of steps; so do its stored extras and carries."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlsdk.buffers import ReplayBuffer, SequenceReplay, rows_in_order
from rlsdk.buffers.columns import Columns
from rlsdk.errors import PluginError, SettingsError, UsageError
from rlsdk.records import Observation, Rollout, Sequences, StepData
from rlsdk.storage.archive import read, write
from tests.buffers.test_replay import Script, context
from tests.tables import in_one_test


@dataclass(frozen=True)
class Extras:
    log_prob: Tensor
    memory: tuple[Tensor, Tensor]
    info: dict[str, Tensor]
    value: Tensor | None = None


class Recorded(Script):
    """A `Script` whose policy has extras and a carry, which are computed from the observations."""

    def record(self, given: Any, ends: Any, valid: Any, finals: Any) -> Rollout[Any, Any]:
        item = super().record(given, ends, valid, finals)
        seen, first = given
        extras = Extras(seen + 0.5, (seen[..., None] + 1, (seen + 2).long()), {"cost": seen * 3})
        self.first_flags = [*getattr(self, "first_flags", []), *first.tolist()]
        info = {"weight": seen * 4}
        return replace(item, steps=replace(item.steps, extras=extras, info=info), initial_carry=(seen[0][:, None] + 7,))


def played(
    seed: int, *, shared: bool, carry: bool, length: int = 4, envs: int = 2
) -> tuple[SequenceReplay[Any], Recorded]:
    dice, rows = random.Random(seed), 9
    like = (torch.zeros(envs, 1),) if carry else None
    stored = ReplayBuffer(context(envs), rows * envs, 0.5, shared_observations=shared)
    memory = SequenceReplay(stored, length=length, burn_in=1, carry=like)
    script = Recorded(memory, envs)  # type: ignore[arg-type]
    for _ in range(dice.randint(1, 9)):
        script.play([dice.choices("ctux", [6, 1, 1, 1], k=envs) for _ in range(dice.randint(1, 3))])
    return memory, script


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("carry", [False, True])
def test_sequences_are_what_happened_in_order(shared: bool, carry: bool) -> None:
    for seed in range(12):
        memory, script = played(seed, shared=shared, carry=carry)
        if carry and not startable(memory):
            with pytest.raises(UsageError, match="begins with a stored recurrent state"):
                memory.sample(1, torch.Generator())
            continue
        batch = memory.sample(40, torch.Generator().manual_seed(seed))
        check(batch, memory, script, carry)
        stored = ReplayBuffer(context(2), 18, 0.5, shared_observations=shared)
        again = SequenceReplay(stored, length=4, burn_in=1, carry=(torch.zeros(2, 1),) if carry else None)
        again.load_state_dict(memory.state_dict())
        repeated = again.sample(40, torch.Generator().manual_seed(seed))
        check(repeated, again, script, carry)
        assert torch.equal(repeated.index, batch.index)


def test_rows_in_order_leave_out_the_padding_and_mark_each_beginning() -> None:
    memory, _ = played(3, shared=False, carry=False)
    batch = memory.sample(6, torch.Generator().manual_seed(0))
    wanted = [
        (float(batch.steps.observation.features["x"][t, n]), t == 0, bool(batch.loss_mask[t, n]))  # type: ignore[index]
        for n in range(6)
        for t in range(4)
        if batch.steps.valid[t, n]
    ]
    steps, starts, mask = rows_in_order(batch)
    seen: Any = steps.observation.features
    assert len(wanted) < 24, "no padding, so this tests nothing"
    assert list(zip(seen["x"].squeeze(-1).tolist(), starts.tolist(), mask.tolist(), strict=True)) == wanted


def test_stored_carries_are_searched_once_per_change_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large memory, the search takes longer than a draw. A loaded state is a change too."""
    (memory, script), (other, _) = (played(seed, shared=False, carry=True, envs=2) for seed in (3, 4))
    searches: list[int] = []
    search = memory._beginnings
    monkeypatch.setattr(memory, "_beginnings", lambda starts: searches.append(starts) or search(starts))
    draws = [memory.sample(20, torch.Generator().manual_seed(1)).index for _ in range(2)]
    assert torch.equal(*draws)
    assert len(searches) == 1
    script.play([["c", "t"]])
    memory.sample(20, torch.Generator().manual_seed(1))
    assert len(searches) == 2
    memory.load_state_dict(other.state_dict())
    loaded = memory.sample(20, torch.Generator().manual_seed(1)).index
    assert torch.equal(loaded, other.sample(20, torch.Generator().manual_seed(1)).index)
    assert len(searches) == 3


def startable(memory: SequenceReplay[Any]) -> bool:
    """Whether a row at which a sequence can begin has a stored carry. With few rows, only the oldest row can."""
    stored = memory.inner
    starts = max(stored.filled - memory.length, 0) + 1
    return bool(stored.storage["has_carry"][(stored.oldest + torch.arange(starts)) % stored.ring].any())


def check(batch: Any, memory: SequenceReplay[Any], script: Recorded, carry: bool) -> None:
    """Compare every column of every sequence with the rows of the script."""
    held, total = memory.inner.filled, len(script.rows)
    ring = memory.inner.ring
    for n in range(40):
        row, env = int(batch.index[n]) // 2, int(batch.index[n]) % 2
        number = next(k for k in range(total - held, total) if k % ring == row)
        assert number + 4 <= total or (held < 4 and number == total - held)
        for t in range(4):
            known = script.rows[number + t][env] if number + t < total else None
            valid = bool(batch.steps.valid[t, n])
            assert valid == (known is not None)
            assert bool(batch.loss_mask[t, n]) == (valid and t >= 1)
            if known is None:
                # padding has to be finite, so it repeats the newest row
                if number + t >= total and (newest := script.rows[-1][env]) is not None:
                    assert float(batch.steps.observation.features["x"][t, n]) == newest[0]
                continue
            now, after, discount, reward = known
            assert float(batch.steps.observation.features["x"][t, n]) == now
            assert float(batch.next_observation.features["x"][t, n]) == after
            assert (float(batch.discount[t, n]), float(batch.steps.reward[t, n])) == (discount, reward)
            assert bool(batch.steps.terminated[t, n]) == (discount == 0.0)
            assert bool(batch.steps.observation.is_first[t, n]) == script.first_flags[number + t][env]
            extras = {name: float(value[t, n]) for name, value in batch.steps.extras.items()}
            assert float(batch.steps.info["weight"][t, n]) == now * 4
            assert extras == {"log_prob": now + 0.5, "memory.0": now + 1, "memory.1": now + 2, "info.cost": now * 3}
        if carry and script.rows[number][env] is not None:
            assert float(batch.initial_carry[0][n]) == script.rows[number][env][0] + 7  # type: ignore[index]
    assert carry == (batch.initial_carry is not None)


def test_rows_give_the_extras_that_are_asked_for_and_no_others() -> None:
    memory = ReplayBuffer(context(2), 20, 0.5).with_columns(Columns(extras=("log_prob", "memory")))
    before = memory.bytes_required()
    Recorded(memory, 2).play([["c", "t"], ["c", "c"]])
    batch = memory.sample(30, torch.Generator().manual_seed(0))
    assert sorted(batch.extras) == ["log_prob", "memory.0", "memory.1"]
    assert torch.equal(batch.info["weight"], batch.observation.features["x"][:, 0] * 4)
    assert torch.equal(batch.extras["log_prob"], batch.observation.features["x"][:, 0] + 0.5)
    assert memory.bytes_required() == before + 20 * (4 + 4 + 8 + 4)
    plain = ReplayBuffer(context(2), 20, 0.5)
    Recorded(plain, 2).play([["c", "t"]])
    assert plain.sample(3, torch.Generator().manual_seed(0)).extras == {}
    assert "extras" not in plain.storage


def test_extras_that_change_or_are_missing_are_one_error() -> None:
    memory = ReplayBuffer(context(1), 20, 0.5).with_columns(Columns(extras=("nothing",)))
    with pytest.raises(SettingsError, match=r"no 'nothing' to store; did you mean|no 'nothing' to store; accepted"):
        Recorded(memory, 1).play([["c"]])
    memory = ReplayBuffer(context(1), 20, 0.5).with_columns(Columns(extras="all"))
    script = Recorded(memory, 1)
    script.play([["c"]])
    item = script.record(
        (torch.zeros(1, 1), torch.zeros(1, 1).bool()), torch.zeros(2, 1, 1).bool(), torch.ones(1, 1).bool(), []
    )
    with pytest.raises(UsageError, match="not those of the rows before"):
        memory.extend(replace(item, steps=replace(item.steps, extras={"log_prob": torch.zeros(1, 1)})))
    with pytest.raises(PluginError, match="hold a float in 'x'"):
        memory.extend(replace(item, steps=replace(item.steps, extras={"x": 1.0})))


def test_lengths_that_make_no_sequence_are_refused() -> None:
    with pytest.raises(SettingsError, match="leave no row to learn from"):
        SequenceReplay(ReplayBuffer(context(1), 20, 0.5), length=3, burn_in=3)
    with pytest.raises(SettingsError, match="do not fit a buffer of 4 rows"):
        SequenceReplay(ReplayBuffer(context(5), 20, 0.5), length=6)
    with pytest.raises(UsageError, match="empty"):
        SequenceReplay(ReplayBuffer(context(1), 20, 0.5), length=3).sample(1, torch.Generator())
    memory = SequenceReplay(ReplayBuffer(context(1), 20, 0.5), length=3, carry=(torch.zeros(1, 4),))
    with pytest.raises(UsageError, match="build the buffer with its initial_carry"):
        Recorded(memory, 1).play([["c"]])  # type: ignore[arg-type]


@in_one_test
@pytest.mark.parametrize("extras", [(), {}, None, Extras.__new__(Extras)], ids=["()", "{}", "None", "a record"])
@pytest.mark.parametrize("stored", [True, False, (), {}, None], ids=lambda value: f"extras={value}")
@pytest.mark.parametrize("carry", [(), None], ids=["carry=()", "carry=None"])
def test_a_policy_without_extras_leaves_checkpoints_that_load(
    extras: Any, stored: Any, carry: Any, tmp_path: Path
) -> None:
    if isinstance(extras, Extras):
        extras = replace(Extras(None, (), {}), info={})  # type: ignore[arg-type]

    class Plain(Recorded):
        def record(self, given: Any, ends: Any, valid: Any, finals: Any) -> Rollout[Any, Any]:
            item = super().record(given, ends, valid, finals)
            return replace(item, steps=replace(item.steps, extras=extras), initial_carry=())

    def memory() -> SequenceReplay[Any]:
        return SequenceReplay(ReplayBuffer(context(2), 18, 0.5), length=3, extras=stored, carry=carry)

    before = memory()
    script = Plain(before, 2)  # type: ignore[arg-type]
    script.play([["c", "c"], ["c", "t"], ["c", "c"]])
    write(tmp_path / "memory", {"kind": "rlsdk-replay"}, {"replay": before.state_dict()})
    after = memory()
    after.load_state_dict(read(tmp_path / "memory", kind="rlsdk-replay")[1]["replay"])
    first, second = (each.sample(5, torch.Generator().manual_seed(1)) for each in (before, after))
    assert torch.equal(first.steps.reward, second.steps.reward)
    assert first.steps.extras == second.steps.extras == {}
    script.play([["c", "c"]])
    Plain(after, 2).play([["c", "c"]])  # type: ignore[arg-type]


def test_damaged_extras_are_refused() -> None:
    memory, _ = played(3, shared=False, carry=False)
    state: Any = memory.state_dict()
    state = {**state, "leaves": {**state["leaves"], "extras": {"log_prob": torch.zeros(3)}}}
    with pytest.raises(UsageError, match="extras that do not belong"):
        SequenceReplay(ReplayBuffer(context(2), 18, 0.5), length=4).load_state_dict(state)


def test_rows_continue_unless_the_episode_ends_or_is_cut() -> None:
    """The four environments: a termination, a truncation, a termination with a filler row, a reset inside an episode."""
    terminated, truncated, first, valid = (torch.zeros(4, 4, dtype=torch.bool) for _ in range(4))
    valid[:] = True
    terminated[1, 0] = truncated[1, 1] = terminated[1, 2] = True
    valid[2, 2] = False
    first[2, (0, 1, 3)] = first[3, 2] = True
    steps = StepData(
        Observation(torch.zeros(4, 4), first), torch.zeros(4, 4), torch.zeros(4, 4), terminated, truncated, valid, {}
    )
    batch = Sequences(steps, steps.observation, torch.ones(4, 4), valid, None, torch.arange(4))
    ends = [1, 0, 1, 0]
    assert batch.continues.T.int().tolist() == [ends, ends, [1, 0, 0, 0], ends]
