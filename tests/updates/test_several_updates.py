"""Batches that are sampled together, and updates that compute their targets together, exactly equal single ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

import rlsdk
from rlsdk.buffers import ReplayBuffer
from rlsdk.interfaces import AlgorithmAbilities, BufferAbilities
from rlsdk.interfaces.abilities import shortcut
from rlsdk.kernels import KernelChoice
from rlsdk.networks.discrete_values import DiscreteValuePolicy
from rlsdk.networks.encoders import FlattenEncoder
from rlsdk.runtime.process import Streams
from rlsdk.spaces import Box, Discrete
from rlsdk.training import ReplayUpdates
from rlsdk.tree import leaves, split
from rlsdk.updates import QLearning

SETTINGS: dict[str, Any] = {"learning_starts": 50, "train_freq": 32, "gradient_steps": 16, "batch_size": 16}


def agent(algorithm: str = "dqn", **changes: Any) -> rlsdk.Agent:
    return rlsdk.make(algorithm, env="CartPole-v1", seed=0, **{**SETTINGS, **changes}).learn(128)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.lists(st.integers(1, 70), max_size=2), st.integers(1, 4), st.data())
def test_values_of_several_batches_are_those_of_each(
    count: int, rows: int, hidden: list[int], actions: int, data: st.DataObject
) -> None:
    backend = data.draw(st.sampled_from(["numpy", "torch", "autograd"]))
    space = Box(np.full(3, -1.0), np.full(3, 1.0), (3,), "float32")
    policy = DiscreteValuePolicy(FlattenEncoder(space), hidden, "tanh", Discrete(actions), choice=KernelChoice(backend))
    features = torch.randn(count * rows, 3)
    several = policy.values_of_several(features, count)
    each = [policy.evaluate(part)[0] for part in split(features, rows)]
    assert torch.equal(several, torch.cat(each))


@pytest.mark.parametrize("changes", [{}, {"n_steps": 3}, {"optimize_memory_usage": True}], ids=str)
def test_batches_sampled_together_are_those_of_single_samples(changes: dict[str, Any]) -> None:
    memory = agent(**changes).parts.buffer
    assert isinstance(memory, ReplayBuffer)
    together = split(memory.sample_several(5, 7, torch.Generator().manual_seed(1)), 7)
    generator = torch.Generator().manual_seed(1)
    for batch in together:
        assert all(map(torch.equal, leaves(batch), leaves(memory.sample(7, generator))))


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("dqn", {}),
        ("dqn", {"double_q": True}),
        ("dqn", {"normalize": True}),
        ("dqn", {"policy_kwargs": {"net_arch": []}}),
        ("qrdqn", {}),
        ("sac", {}),
    ],
    ids=str,
)
def test_updates_together_equal_single_ones(algorithm: str, changes: dict[str, Any]) -> None:
    env = {"env": "Pendulum-v1"} if algorithm == "sac" else {"env": "CartPole-v1"}
    together, single = (rlsdk.make(algorithm, seed=0, **{**SETTINGS, **env, **changes}).learn(128) for _ in range(2))
    found = [ReplayUpdates(model.parts, Streams(0)) for model in (together, single)]
    metrics = [updates.update(9, 16, 0.5, each) for updates, each in zip(found, (None, lambda _: None), strict=True)]
    assert all(map(torch.equal, together.parts.policy.state_dict().values(), single.parts.policy.state_dict().values()))
    assert {name: float(value) for name, value in metrics[0].items()} == {n: float(v) for n, v in metrics[1].items()}


def test_priorities_follow_every_update() -> None:
    """Batches that are drawn ahead would have the priorities of before."""
    model = agent(replay_buffer_class="prioritized")
    memory: Any = model.parts.buffer

    class Several(type(memory)):  # type: ignore[misc]
        def sample(self, size: int, generator: Generator) -> object:
            return super().sample(size, generator)

        def sample_several(self, count: int, size: int, generator: Generator) -> object:
            raise AssertionError("several batches were drawn at once")

    memory.__class__ = Several
    before = memory.state_dict()["priorities"].clone()
    ReplayUpdates(model.parts, Streams(0)).update(3, 8, 0.5)
    assert not torch.equal(before, memory.state_dict()["priorities"])


class Numbering:
    """An algorithm whose metric `all` is the number of the update; every third update has the metric `third` too."""

    def __init__(self) -> None:
        self.updates = 0

    def update(self, batch: object, *, progress: float) -> dict[str, Tensor]:
        self.updates += 1
        number = torch.tensor(float(self.updates))
        return {"all": number, "third": number} if self.updates % 3 == 0 else {"all": number}

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: object, /) -> None: ...


@pytest.mark.parametrize("each", [None, lambda done: None], ids=["together", "single"])
def test_a_metric_is_the_mean_over_the_updates_that_have_it(each: Any) -> None:
    updates = ReplayUpdates(replace(agent().parts, algorithm=Numbering()), Streams(0))
    assert updates.update(7, 8, 0.5, each) == {"all": 4.0, "third": 4.5}
    assert updates.update(1, 8, 0.5, each) == {"all": 8.0}
    assert updates.update(2, 8, 0.5, each) == {"all": 9.5, "third": 9.0}


@pytest.mark.parametrize("gradient_steps", [-1, 0, 4])
def test_updates_on_request_do_not_need_those_of_rounds(gradient_steps: int) -> None:
    model = agent(gradient_steps=gradient_steps)
    before = next(iter(model.parts.policy.parameters())).clone()
    model.train(gradient_steps=3)
    assert not torch.equal(before, next(iter(model.parts.policy.parameters())))


def test_several_due_copies_to_the_target_equal_single_ones() -> None:
    several, single = (agent(tau=0.3, target_update_interval=5) for _ in range(2))
    start = several.parts.algorithm.counted
    assert start == single.parts.algorithm.counted
    for model in (several, single):
        for parameter in model.parts.policy.parameters():
            parameter.data.add_(1.0)
    several.parts.algorithm.collected(start + 20, 0.5)
    for steps in range(1, 21):
        single.parts.algorithm.collected(start + steps, 0.5)
    found, wanted = (list(model.parts.algorithm.target.network.parameters()) for model in (several, single))
    torch.testing.assert_close(found, wanted)
    assert not torch.equal(found[0], next(iter(several.parts.policy.parameters())))


def test_large_batches_are_sampled_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = list[int]()
    draw = ReplayBuffer.sample_several
    monkeypatch.setattr(
        ReplayBuffer,
        "sample_several",
        lambda self, count, size, generator: sizes.append(count) or draw(self, count, size, generator),
    )
    monkeypatch.setattr("rlsdk.training.off_policy.BYTES_AT_ONCE", 16 * 60 * 3)
    agent()
    assert 1 < max(sizes) <= 4
    sizes.clear()
    agent(batch_size=4096)
    assert set(sizes) == {1}


def test_a_method_that_a_subclass_overrides_is_not_left_out() -> None:
    class Own(QLearning[Any]):
        def update(self, batch: Any, *, progress: float) -> Any:
            return super().update(batch, progress=progress)

    class Wrapped:
        def __init__(self, inside: object) -> None:
            self.inside = inside

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inside, name)

        def sample(self, size: int, generator: Generator) -> object:
            return self.inside.sample(size, generator)  # type: ignore[attr-defined]

    model = agent()
    algorithm, memory = model.parts.algorithm, model.parts.buffer
    assert shortcut(algorithm, AlgorithmAbilities, "update_several", "update") is algorithm
    assert shortcut(memory, BufferAbilities, "sample_several", "sample") is memory
    algorithm.__class__ = Own  # type: ignore[assignment]
    assert shortcut(algorithm, AlgorithmAbilities, "update_several", "update") is None
    assert shortcut(Wrapped(memory), BufferAbilities, "sample_several", "sample") is None
