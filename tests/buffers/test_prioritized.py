"""Prioritized replay: the sum tree, sampling frequencies, importance weights, and their use by algorithms."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from rlsdk.buffers import ReplayBuffer
from rlsdk.buffers.replay import PrioritizedReplay, SumTree
from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import SettingsError, UsageError
from rlsdk.interfaces import BuildContext
from rlsdk.math.values import quantile_huber, quantile_huber_loss, td_error
from rlsdk.preprocessing.preprocessing import FrameStackEnv, FrameStacker
from rlsdk.records import Act, ActingState
from rlsdk.runtime.process import Streams
from rlsdk.training.collector import collect
from rlsdk_envs.toy import AnySpaceEnv, IdentityEnv, IdentityEnvBox
from rlsdk_qrdqn import QRDQN
from rlsdk_tqc import TQC
from tests.buffers.test_replay import Script, context


@given(st.integers(1, 40), st.data())
def test_the_tree_finds_what_running_sums_find(size: int, data: st.DataObject) -> None:
    tree, plain = SumTree(size), np.zeros(size)
    places = st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, 9)), min_size=1, max_size=20)
    for _ in range(3):
        pairs = dict(data.draw(places))
        tree.set(np.array(list(pairs), np.int64), np.array(list(pairs.values()), float))
        plain[list(pairs)] = list(pairs.values())
    assert tree.total == plain.sum()
    if plain.sum():
        mass = np.linspace(0.0, plain.sum(), 33)[:-1]
        assert tree.find(mass).tolist() == np.searchsorted(plain.cumsum(), mass, side="right").tolist()


def memory(envs: int = 1, rows: int = 8, **settings: Any) -> tuple[PrioritizedReplay, Script]:
    buffer = PrioritizedReplay(context(envs), rows * envs, 0.5, **settings)
    return buffer, Script(buffer, envs)  # type: ignore[arg-type]


@pytest.mark.parametrize("shared", [False, True])
def test_rows_are_true_and_new_ones_are_drawn(shared: bool) -> None:
    buffer, script = memory(envs=2, rows=5, shared_observations=shared, n_steps=2)
    for kinds in (["c", "u"], ["x", "c"], ["t", "c"], ["c", "c"], ["c", "u"], ["c", "c"], ["c", "c"]):
        script.play([kinds])
        assert script.sampled(seed=1) == script.expected(5, n_steps=2)
        assert len(buffer) == min(len(script.rows), 5) * 2


def test_frequencies_and_weights() -> None:
    buffer, script = memory(rows=6, alpha=0.5, beta=0.4, epsilon=0.0)
    script.play([["c"]] * 6)
    error = torch.tensor([1.0, 4.0, 9.0, 0.25, 1.0, 16.0])
    buffer.prioritize(torch.arange(6), error)
    share = error.double().sqrt().numpy()
    share /= share.sum()
    generator = torch.Generator().manual_seed(0)
    batches = [buffer.sample(50, generator) for _ in range(400)]
    counts = np.bincount(torch.cat([b.index for b in batches]).numpy(), minlength=6)
    assert chisquare(counts, share * 20_000).pvalue > 0.01
    expected = (6 * share) ** -0.4
    for batch in batches[:5]:
        assert batch.weight is not None
        given_weights = batch.weight.numpy()
        wanted = expected[batch.index.numpy()]
        np.testing.assert_allclose(given_weights, wanted / wanted.max(), rtol=1e-5)
    buffer.collected(100, progress=1.0)
    assert buffer.beta_now == 1.0
    script.play([["c"]])
    assert buffer.tree.values[0] == 4.0  # new rows get the largest error so far, to the power alpha


@pytest.mark.parametrize("errors", [(np.nan, 2.0), (np.inf, 2.0), (np.nan, np.inf), (-np.inf, np.nan)])
def test_errors_that_are_not_finite_leave_priorities_alone(errors: tuple[float, float]) -> None:
    buffer, script = memory(rows=4, alpha=1.0, epsilon=0.0)
    script.play([["c"]] * 4)
    buffer.prioritize(torch.arange(4), torch.tensor([3.0, 1.0, 0.5, 0.25]))
    buffer.prioritize(torch.arange(2), torch.tensor(errors))
    second = 2.0 if errors[1] == 2.0 else 1.0
    assert buffer.tree.values.tolist() == [3.0, second, 0.5, 0.25]
    assert buffer.tree.total == pytest.approx(3.75 + second)
    assert buffer.largest == 3.0
    buffer.sample(4, torch.Generator().manual_seed(0))


def test_state_travels_and_nonsense_is_refused() -> None:
    buffer, script = memory(rows=6)
    with pytest.raises(UsageError, match="empty"):
        buffer.sample(1, torch.Generator())
    again, _ = memory(rows=6)
    again.load_state_dict(again.state_dict())  # without a row, no priority is missing
    script.play([["c"]])
    again.load_state_dict(buffer.state_dict())
    script.play([["c"]] * 5)
    buffer.prioritize(torch.arange(6), torch.arange(6.0))
    again.load_state_dict(buffer.state_dict())
    one, two = (b.sample(64, torch.Generator().manual_seed(3)) for b in (buffer, again))
    assert torch.equal(one.index, two.index)
    assert torch.equal(one.weight, two.weight)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="finite"):
        again.load_state_dict(
            {**buffer.state_dict(), "priorities": torch.full((6,), float("nan"), dtype=torch.float64)}
        )
    for wrong in ({"alpha": 2.0}, {"beta": "much"}, {"epsilon": -1.0}):
        with pytest.raises(SettingsError, match="between 0 and 1"):
            memory(**wrong)


def test_weighted_losses_and_their_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(5, generator=generator)
    for shape in ((5, 4), (3, 5, 4)):
        z = torch.randn(shape, generator=generator).requires_grad_()
        y = torch.randn((5, 6), generator=generator)
        loss, gradient = quantile_huber(z.detach(), y, sum_over_quantiles=False, weight=weight)
        rows = []
        for n in range(5):
            row = z[..., n, :].reshape(-1, 1, 4)
            rows.append(quantile_huber_loss(row, y[n].expand(len(row), 1, 6), sum_over_quantiles=False) * weight[n])
        expected = torch.stack(rows).mean()
        (wanted,) = torch.autograd.grad(expected, z)
        assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-5)
        assert torch.allclose(gradient, wanted, atol=1e-6)
    assert td_error(torch.tensor([[[0.0, 2.0]], [[4.0, 4.0]]]), torch.tensor([[5.0, 5.0]])).tolist() == [2.5]


@pytest.mark.parametrize(("kind", "env"), [(QRDQN, IdentityEnv(4)), (TQC, IdentityEnvBox())])
def test_algorithms_learn_from_it(kind: Any, env: Any) -> None:
    kwargs = {
        "policy_kwargs": {"net_arch": [16], "n_quantiles": 5},
        "learning_starts": 20,
        "seed": 0,
        "buffer_size": 200,
    }
    model = kind("MlpPolicy", env, replay_buffer_class="prioritized", train_freq=1, **kwargs).learn(150)
    buffer = model.replay_buffer
    assert isinstance(buffer, PrioritizedReplay)
    assert len(set(np.round(buffer.tree.values[:150], 6))) > 50
    assert buffer.beta_now == 1.0


def test_an_algorithm_that_tells_no_errors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = QRDQN("MlpPolicy", IdentityEnv(4), replay_buffer_class="prioritized", learning_starts=10, buffer_size=100)
    del model.parts.algorithm.td_error  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match="td_error"):
        model.learn(50)


def test_uniform_priorities_draw_like_the_uniform_memory() -> None:
    buffer, script = memory(rows=6, alpha=0.0)
    script.play([["c"]] * 6)
    buffer.prioritize(torch.arange(6), torch.arange(6.0))
    batch = buffer.sample(6, torch.Generator().manual_seed(0))
    assert sorted(batch.index.tolist()) == list(range(6))  # one row from each of six equal strata
    assert batch.weight is not None
    assert batch.weight.tolist() == [1.0] * 6
    assert isinstance(buffer.inner, ReplayBuffer)


@pytest.mark.parametrize(("envs", "rows", "count"), [(1, 20, 4), (2, 6, 3), (3, 4, 6), (2, 30, 2)])
def test_stacks_whose_frames_were_overwritten_are_never_drawn(envs: int, rows: int, count: int) -> None:
    """A small buffer that stores every frame once: priorities change between samples, and the state is saved and loaded."""
    single = to_space(spaces.Box(-np.inf, np.inf, (1,), np.float32))
    frames = FrameStacker(single, count)
    common = BuildContext(frames.space, to_space(spaces.Discrete(2)), envs, "cpu", Streams(0), frames=frames)
    buffer = PrioritizedReplay(common, rows * envs, 0.9, shared_observations=True, n_steps=2)
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(envs)
    lengths = cycle((3, 7, 4, 9))
    env = make_vec_env(lambda: AnySpaceEnv(unit_box(), spaces.Discrete(2), next(lengths)), envs, vectorization="sync")
    prepared = FrameStackEnv(env, frames, "cpu")
    seen, stacks = prepared.reset(0), list[torch.Tensor]()
    for _ in range(4 * rows // 3 + 12):
        rollout = played(prepared, seen, int(rng.integers(1, 4)), generator)
        stacks += list(rollout.steps.observation.features)
        buffer.extend(rollout)
        seen = rollout.last_observation
        assert set(np.flatnonzero(buffer.tree.values)) == drawable(buffer, envs)
        batch = buffer.sample(64, generator)
        row, column = batch.index // envs, batch.index % envs
        age = (buffer.inner.head - 1 - row) % buffer.inner.ring
        expected = torch.stack([stacks[len(stacks) - 1 - int(a)][int(e)] for a, e in zip(age, column, strict=True)])
        assert torch.equal(batch.observation.features, expected)
        buffer.prioritize(batch.index, torch.rand(64, generator=generator) * 5.0)
        again = PrioritizedReplay(common, rows * envs, 0.9, shared_observations=True, n_steps=2)
        again.load_state_dict(buffer.state_dict())
        assert np.array_equal(again.tree.values, buffer.tree.values)


def drawable(buffer: PrioritizedReplay, envs: int) -> set[int]:
    """Return the flat positions of the rows that have all frames of their stack in the buffer."""
    inner = buffer.inner
    rows = (inner.head - 1 - torch.arange(inner.filled)) % inner.ring
    index = (rows[:, None] * envs + torch.arange(envs)).flatten()
    return set(index[inner.usable(index)].tolist())


def unit_box() -> Any:
    return spaces.Box(-1.0, 1.0, (1,), np.float32)


def played(env: Any, seen: Any, length: int, generator: torch.Generator) -> Any:
    class Still:
        def initial_carry(self, batch: int) -> tuple[()]:
            return ()

        def act(self, observation: Any, carry: Any, **_: Any) -> Any:
            return Act(torch.zeros(len(observation.is_first), dtype=torch.int64), (), ())

    return collect(env, Still(), ActingState(seen, ()), length, generator=generator)  # type: ignore[arg-type]


def test_a_file_of_before_gives_no_broken_stacks() -> None:
    """Rows with overwritten frames keep priority 0, even if `prioritize` or a file gives them a priority."""
    frames = FrameStacker(to_space(unit_box()), 3)
    common = BuildContext(frames.space, to_space(spaces.Discrete(2)), 1, "cpu", Streams(0), frames=frames)
    buffer, other = (PrioritizedReplay(common, 6, 0.9, shared_observations=True) for _ in range(2))
    env = make_vec_env(lambda: AnySpaceEnv(unit_box(), spaces.Discrete(2), 100), 1)
    prepared = FrameStackEnv(env, frames, "cpu")
    buffer.extend(played(prepared, prepared.reset(0), 11, torch.Generator()))
    gone = sorted(set(range(buffer.inner.ring)) - drawable(buffer, 1))
    assert len(gone) == 3  # the row of the newest observation, and two rows with overwritten frames
    buffer.prioritize(torch.tensor(gone), torch.ones(3))
    assert (buffer.tree.values[gone] == 0.0).all()
    state = buffer.state_dict()
    state["priorities"][gone[1:]] = 1.0
    other.load_state_dict(state)
    assert set(np.flatnonzero(other.tree.values)) <= drawable(other, 1)
