"""The replay buffer against a naive list of transitions, in both storage modes."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rlsdk import tree
from rlsdk.buffers import ReplayBuffer
from rlsdk.buffers.columns import Columns
from rlsdk.buffers.rows import Rows, allocate, in_memory
from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import ResourceError, SettingsError, UsageError
from rlsdk.interfaces import BuildContext
from rlsdk.records import ActingState, FinalObservations, Observation, Rollout, StepData
from rlsdk.runtime.memory import available_bytes, gigabytes, require_memory
from rlsdk.runtime.process import Streams
from tests.tables import in_one_test

SPACE = spaces.Dict({"x": spaces.Box(-1e9, 1e9, (1,), np.float32), "k": spaces.Discrete(7)})
ACTION = spaces.Box(-1.0, 1.0, (1,), np.float32)


def context(num_envs: int) -> BuildContext:
    return BuildContext(to_space(SPACE), to_space(ACTION), num_envs, "cpu", Streams(0))


def features(numbers: Any) -> Any:
    values = torch.as_tensor(numbers, dtype=torch.float32)
    return {"x": values.unsqueeze(-1), "k": (values % 7).long()}


def observation(numbers: Any, first: Any = False) -> Observation:
    values = torch.as_tensor(numbers)
    return Observation(features(values), torch.as_tensor(first).expand(values.shape).clone())


class Script:
    """Fills a buffer with numbered observations and stores every transition in a plain list too."""

    def __init__(self, buffer: ReplayBuffer, num_envs: int) -> None:
        self.buffer, self.envs, self.counter = buffer, num_envs, 0.0
        self.interrupt()
        self.rows: list[list[tuple[float, float, float, float] | None]] = []

    def fresh(self) -> float:
        self.counter += 1.0
        return self.counter

    def play(self, steps: list[list[str]]) -> None:
        """Add one rollout. Each step has a letter per environment: c(ontinue), t(erminate), u (truncate) or x (filler row)."""
        shape = (len(steps), self.envs)
        seen, first, ends, valid = (
            torch.zeros(shape),
            torch.zeros(shape, dtype=torch.bool),
            torch.zeros((2, *shape), dtype=torch.bool),
            torch.ones(shape, dtype=torch.bool),
        )
        finals: list[tuple[int, int, float]] = []
        for t, kinds in enumerate(steps):
            row: list[tuple[float, float, float, float] | None] = []
            for e, kind in enumerate(kinds):
                now, after = self.current[e], self.fresh()
                seen[t, e], first[t, e], self.first[e] = now, self.first[e], False
                valid[t, e] = kind != "x"
                row.append((now, after, 0.0 if kind == "t" else 0.5, now * 2) if kind != "x" else None)
                self.current[e] = after
                if kind in "tu":
                    ends[0 if kind == "t" else 1, t, e] = True
                    finals.append((t, e, after))
                    self.current[e], self.first[e] = self.fresh(), True
            self.rows.append(row)
        self.buffer.extend(self.record((seen, first), ends, valid, finals))

    def record(self, given: Any, ends: Any, valid: Any, finals: list[tuple[int, int, float]]) -> Rollout[Any, Any]:
        seen, first = given
        data = StepData(observation(seen, first), seen[..., None] / 1e6, seen * 2, ends[0], ends[1], valid, ())
        sparse = None
        if finals:
            time, env, last = (torch.tensor(column) for column in zip(*finals, strict=True))
            sparse = FinalObservations(time.long(), env.long(), observation(last))
        return Rollout(data, (), observation(torch.tensor(self.current), self.first), (), sparse)

    def interrupt(self) -> None:
        """Reset the environments in the middle of their episodes, as `learn` does after `set_env`."""
        self.current, self.first = [self.fresh() for _ in range(self.envs)], [True] * self.envs

    def expected(self, capacity_rows: int, n_steps: int = 1) -> set[tuple[float, float, float, float]]:
        kept = self.rows[-capacity_rows:]
        columns = [[row[e] for row in kept] for e in range(self.envs)]
        return {ahead(column[i : i + n_steps]) for column in columns for i in range(len(kept)) if column[i] is not None}

    def sampled(self, seed: int, count: int = 400) -> set[tuple[float, float, float, float]]:
        batch = self.buffer.sample(count, torch.Generator().manual_seed(seed))
        columns = (
            batch.observation.features["x"][:, 0],
            batch.next_observation.features["x"][:, 0],
            batch.discount,
            batch.reward,
        )
        assert torch.equal(batch.observation.features["k"], (columns[0] % 7).long())
        assert torch.equal(batch.next_observation.features["k"], (columns[1] % 7).long())
        return set(zip(*(column.tolist() for column in columns), strict=True))


def ahead(steps: list[Any]) -> tuple[float, float, float, float]:
    """The n-step transition (now, after, discount, reward) from consecutive steps, up to the end of the episode."""
    now, after, discount, reward = steps[0]
    for step in steps[1:]:
        if step is None or step[0] != after or discount == 0.0:
            break
        reward += discount * step[3]
        after, discount = step[1], discount * step[2]
    return now, after, discount, reward


STEPS = st.lists(st.text("ccctu", min_size=3, max_size=3), min_size=1, max_size=4)
ROLLOUTS = st.lists(st.one_of(st.just("interrupt"), STEPS), min_size=1, max_size=14)


@pytest.mark.parametrize("shared", [False, True])
@given(ROLLOUTS, st.integers(1, 3), st.integers(4, 9), st.integers(1, 4))
def test_samples_are_exactly_what_was_stored(
    shared: bool, rollouts: list[Any], envs: int, rows: int, n_steps: int
) -> None:
    buffer = ReplayBuffer(context(envs), rows * envs, 0.5, shared_observations=shared, n_steps=n_steps)
    script = Script(buffer, envs)
    for rollout in rollouts:
        if rollout == "interrupt":
            script.interrupt()
        else:
            script.play([list(step[:envs]) for step in rollout])
    if script.rows:
        assert script.sampled(seed=1) == script.expected(rows, n_steps)
        assert len(buffer) == min(len(script.rows), rows) * envs
        other = ReplayBuffer(context(envs), rows * envs, 0.5, shared_observations=shared, n_steps=n_steps)
        other.load_state_dict(buffer.state_dict())
        script.buffer = other
        script.play([["c"] * envs, ["u"] * envs])
        assert script.sampled(seed=2) == script.expected(rows, n_steps)


@pytest.mark.parametrize("shared", [False, True])
def test_filler_rows_are_never_sampled(shared: bool) -> None:
    for n_steps in (1, 3):
        script = Script(ReplayBuffer(context(2), 20, 0.5, shared_observations=shared, n_steps=n_steps), 2)
        script.play([["c", "x"], ["x", "c"], ["c", "c"], ["u", "x"]])
        assert script.sampled(seed=3) == script.expected(10, n_steps)


def test_sampling_is_uniform() -> None:
    script = Script(ReplayBuffer(context(2), 20, 0.5), 2)
    for _ in range(30):
        script.play([["c", "c"]])
    index = script.buffer.sample(40_000, torch.Generator().manual_seed(0)).index
    counts = torch.bincount(index, minlength=20)
    assert counts.min() > 1800
    assert counts.max() < 2200


def test_a_final_pool_grows_and_forgets() -> None:
    buffer = ReplayBuffer(context(1), 200, 0.5, shared_observations=True)
    script = Script(buffer, 1)
    for _ in range(1000):
        script.play([["u"]])
    assert script.sampled(seed=1, count=4000) == script.expected(200)
    pool: Any = buffer.finals
    assert len(pool.leaves[0]) == 256
    assert len(pool.free) == 256 - 200


def test_empty_and_mismatched_buffers() -> None:
    buffer = ReplayBuffer(context(1), 20, 0.5)
    with pytest.raises(UsageError, match="empty"):
        buffer.sample(1, torch.Generator())
    script = Script(buffer, 1)
    script.play([["c"]] * 9)
    with pytest.raises(UsageError, match="same buffer_size"):
        ReplayBuffer(context(1), 5, 0.5).load_state_dict(buffer.state_dict())
    empty = ReplayBuffer(context(1), 20, 0.5)
    for position in ({"head": 1}, {"written": 1}):
        with pytest.raises(UsageError, match="no rows, but a position"):
            empty.load_state_dict({**empty.state_dict(), **position})


def test_memory_has_the_shapes_of_nested_spaces() -> None:
    nested = spaces.Tuple((spaces.Dict(a=ACTION, b=spaces.Discrete(3)), spaces.Box(0, 255, (2, 4), np.uint8)))
    found = allocate(to_space(nested), (5, 2), in_memory("cpu"))
    assert isinstance(found, tuple)
    flat = tree.flatten(dict(enumerate(found)))
    shapes = {name: (tuple(leaf.shape), leaf.dtype) for name, leaf in flat.items() if isinstance(leaf, torch.Tensor)}
    assert list(shapes.values()) == [((5, 2, 1), torch.float32), ((5, 2), torch.int64), ((5, 2, 2, 4), torch.uint8)]


def test_steps_without_infos_do_not_follow_steps_with_them() -> None:
    """Their rows would hold the infos of the steps that they replace."""
    script = Script(ReplayBuffer(context(1), 4, 0.5), 1)
    record, infos = script.record, {"weight": torch.ones(1, 1)}

    def with_infos(given: Any, ends: Any, valid: Any, finals: Any) -> Rollout[Any, Any]:
        item = record(given, ends, valid, finals)
        return replace(item, steps=replace(item.steps, info=infos))

    script.record = with_infos  # type: ignore[method-assign]
    script.play([["c"]])
    infos = {}
    with pytest.raises(UsageError, match="info"):
        script.play([["c"]])


@in_one_test
@pytest.mark.parametrize(
    ("train_freq", "envs", "capacity", "fits"),
    [
        (10, 1, 10, True),
        (10, 1, 9, False),
        (10, 4, 40, True),
        (10, 4, 39, False),
        ((50, "step"), 1, 49, False),
        # the length of an episode is unknown
        ((50, "episode"), 1, 10, True),
        ((1, "episode"), 4, 3, False),
    ],
)
def test_a_buffer_has_room_for_a_round(train_freq: Any, envs: int, capacity: int, fits: bool, tmp_path: Path) -> None:
    """A folder for it is made, with those that contain it."""
    from rlsdk_qrdqn import QRDQN

    env, folder = make_vec_env("CartPole-v1", envs), tmp_path / "new" / "folder"
    settings: dict[str, Any] = {"train_freq": train_freq, "buffer_size": capacity}
    with nullcontext() if fits else pytest.raises(SettingsError, match="less than one round of collection"):
        QRDQN("MlpPolicy", env, replay_buffer_kwargs={"directory": folder}, **settings)
    assert folder.exists() == fits


def test_the_memory_that_is_asked_for_is_that_of_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("rlsdk.buffers.rows.require_memory", lambda needed, what, remedy: asked.append(needed))
    extras = {"a": torch.zeros(1, 2, 3, 2, dtype=torch.float64), "b": torch.zeros(1, 2, dtype=torch.bool)}
    example = (torch.zeros(2, 3), torch.zeros(2, 1, dtype=torch.int64))
    for shared, ends, carry, masks in itertools.product((False, True), repeat=4):
        action = spaces.Discrete(5) if masks else ACTION
        built = replace(context(2), action_space=to_space(action), masks=masks)
        columns = Columns(ends=ends, carry=example if carry else None)
        rows = Rows(built, 20, 0.5, shared=shared, directory=None, columns=columns)
        before = rows.bytes_required()
        rows.allocate(masks)
        assert before == rows.bytes_required() == sum(leaf.nbytes for leaf in tree.leaves(rows.storage))
        rows.allocate_named("extras", extras)
        assert (
            asked.pop()
            == rows.bytes_required() - before
            == sum(leaf.nbytes for leaf in tree.leaves(rows.storage["extras"]))
        )


def test_what_cannot_fit_is_refused_before_anything_is_allocated() -> None:
    from rlsdk_tqc import TQC

    free = available_bytes()
    assert free is not None
    assert free > 1e8
    with pytest.raises(ResourceError, match=r"needs 10000\d\d\.\d GB, but only .* are free; lower buffer_size"):
        require_memory(10**15 + 10**9, "it", "lower buffer_size")
    assert gigabytes(5_000_000) == "5.0 MB"
    with pytest.raises(ResourceError, match="buffer_size"):
        TQC("MlpPolicy", "Pendulum-v1", buffer_size=10**12)


@given(
    st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.integers(6, 30), st.integers(1, 40), st.integers(0, 99)
)
def test_frames_stored_once_are_stacked_as_they_were_seen(
    count: int, envs: int, n_steps: int, rows: int, steps: int, seed: int
) -> None:
    """Compare with a buffer that stores whole stacks: images, vectors, Discrete values, ends of episodes, full buffers."""
    from rlsdk.environments import make_vec_env
    from rlsdk.preprocessing.preprocessing import FrameStackEnv, FrameStacker
    from rlsdk_envs.toy import AnySpaceEnv

    single = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 3, 1), np.uint8),
            "first": spaces.Box(0, 255, (1, 3, 40), np.uint8),
            "vector": spaces.Box(-1, 1, (2,), np.float32),
            "choice": spaces.Discrete(5, start=2),
            "bits": spaces.MultiBinary(3),
        }
    )
    frames = FrameStacker(to_space(single), count)
    env = make_vec_env(lambda: AnySpaceEnv(single, spaces.Discrete(2), 7), envs, vectorization="sync")
    prepared = FrameStackEnv(env, frames, "cpu")
    common = BuildContext(frames.space, to_space(spaces.Discrete(2)), envs, "cpu", Streams(0), frames=frames)
    once = ReplayBuffer(common, rows * envs, 0.9, shared_observations=True, n_steps=n_steps)
    whole = ReplayBuffer(common, rows * envs, 0.9, n_steps=n_steps)
    assert once.bytes_required() < whole.bytes_required() / count
    generator = torch.Generator().manual_seed(seed)
    seen, played = prepared.reset(seed), 0
    while played < steps:
        length = min(int(torch.randint(1, 6, (), generator=generator)), rows)
        rollout = _played(prepared, seen, length, generator)
        once.extend(rollout)
        whole.extend(rollout)
        seen, played = rollout.last_observation, played + length
    kept = range(max(0, played - rows), played)
    places = [(t % once.ring * envs + e, t % whole.ring * envs + e) for t in kept for e in range(envs)]
    mine, theirs = (torch.tensor(column) for column in zip(*places, strict=True))
    usable = once.usable(mine)
    assert int((~usable).sum()) <= (count - 1) * envs, "only the oldest rows are lost"
    assert bool(usable.all()) or len(kept) == rows
    found, expected = once.at(mine[usable]), whole.at(theirs[usable])
    for one, other in zip(tree.leaves(found)[:-1], tree.leaves(expected)[:-1], strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    drawn = once.draw(50, generator) if bool(usable.any()) else mine[usable]
    assert set(drawn.tolist()) <= set(mine[usable].tolist())
    once.extend(_played(prepared, seen, rows - 1, generator))
    assert torch.equal(once.usable(drawn), once.usable(drawn.clone())), "new rows change which of them can be sampled"


def _played(env: Any, seen: Observation, length: int, generator: torch.Generator) -> Rollout[Any, Any]:
    from rlsdk.exploration.behavior import UniformWarmUp
    from rlsdk.records import Act
    from rlsdk.training.collector import collect

    class Still:
        def initial_carry(self, batch: int) -> tuple[()]:
            return ()

        def act(self, observation: Observation, carry: Any, **_: Any) -> Any:
            return Act(torch.zeros(len(observation.is_first), dtype=torch.int64), (), ())

    policy: Any = UniformWarmUp(Still(), to_space(spaces.Discrete(2)), 10**6)  # type: ignore[arg-type]
    return collect(env, policy, ActingState(seen, policy.initial_carry(env.num_envs)), length, generator=generator)


def test_agents_learn_from_frames_stored_once() -> None:
    import rlsdk

    settings = {"frame_stack": 3, "buffer_size": 200, "learning_starts": 60, "batch_size": 16, "seed": 1}
    sizes = []
    for once in (False, True):
        model = rlsdk.make("qrdqn", env="CartPole-v1", optimize_memory_usage=once, **settings)
        model.learn(300)
        sizes.append(model.replay_buffer.bytes_required())
        model.replay_buffer.load_state_dict(model.replay_buffer.state_dict())
        model.learn(50)
    assert sizes[1] < sizes[0]
