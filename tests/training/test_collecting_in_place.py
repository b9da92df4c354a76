"""Rollouts that are written in place equal those of single steps, and are only made where nothing is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator

import rlsdk
from rlsdk.callbacks import Callback
from rlsdk.environments import make_vec_env
from rlsdk.records import ActingState, Observation
from rlsdk.training import stepwise
from rlsdk.training.collector import LocalCollector, collect
from rlsdk.tree import leaves
from rlsdk_kernels.compiled_library import may_compile

needs_compiled = pytest.mark.skipif(not may_compile(), reason="this installation uses no compiled kernels")
pytestmark = [needs_compiled, pytest.mark.kernels("policies act in place in compiled code")]
SMALL = {"policy_kwargs": {"net_arch": [8]}}
NESTED = spaces.Dict({"a": spaces.Box(0, 100, (3,))})
FEW_QUANTILES = {"policy_kwargs": {"net_arch": [8], "n_quantiles": 5}}


def small(algorithm: str) -> dict[str, Any]:
    return FEW_QUANTILES if algorithm == "qrdqn" else SMALL


class Walk(gym.Env[Any, Any]):
    """Observations [F] of a random walk. Episodes end after some steps, or are cut by a time limit."""

    def __init__(self, features: int = 3, discrete: bool = True, dtype: type = np.float32) -> None:
        self.observation_space = spaces.Box(0, 100, (features,), dtype)
        self.action_space = spaces.Discrete(4) if discrete else spaces.Box(-0.5, 2.0, (2,), np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def seen(self) -> Any:
        return (100 * self.np_random.random(self.observation_space.shape)).astype(self.observation_space.dtype)

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = float(np.sum(action)) + self.steps
        if isinstance(action, np.ndarray):
            action[:] = 7.0  # environments may write into their action
        return self.seen(), reward, bool(self.np_random.random() < 0.1), self.steps == 9, {}


class Masked(Walk):
    """Forbids some actions, which depend on the step."""

    def action_masks(self) -> Any:
        return np.array([True, self.steps % 2 == 0, False, self.steps % 3 > 0])


@contextmanager
def counted() -> Iterator[list[bool]]:
    """A list with an entry per rollout that may be written in place: whether it was."""
    calls: list[bool] = []
    real = stepwise.InPlaceSteps.collect

    def count(*args: Any, **kwargs: Any) -> Any:
        rollout = real(*args, **kwargs)
        calls.append(rollout is not None)
        return rollout

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepwise.InPlaceSteps, "collect", count)
        yield calls


@contextmanager
def not_in_place() -> Iterator[None]:
    """Collect with records of single steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepwise.InPlaceSteps, "collect", lambda *_, **__: None)
        yield


def collected(algorithm: str, make: Callable[[], Any], envs: int, lengths: list[int]) -> tuple[list[Any], Any, Any]:
    """The rollouts of a new agent, with the state of its generator and the returns of its episodes."""
    env = make_vec_env(make, envs, vectorization="sync", seed=3)
    policy = rlsdk.make(algorithm, env=env, seed=0, device="cpu", **small(algorithm)).parts.policy
    if algorithm in ("dqn", "qrdqn"):
        policy.epsilon.fill_(0.3)
    at, generator = ActingState(env.reset(0), policy.initial_carry(envs)), Generator().manual_seed(3)
    # one collector, which uses its memory again
    collector = LocalCollector(env, (at,), (generator,))
    rollouts = [collector.collect(policy, length) for length in lengths]
    tensors = [
        leaf for each in rollouts for leaf in leaves((each.steps, each.last_observation, each.final_observations))
    ]
    return tensors, generator.get_state(), [each.episodes for each in rollouts]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["ppo", "trpo", "a2c", "dqn", "qrdqn", "maskable-ppo"]),
    st.integers(1, 4),
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([np.float32, np.float64, np.uint8]),
)
def test_rollouts_are_those_of_single_steps(
    algorithm: str, envs: int, lengths: list[int], discrete: bool, dtype: type
) -> None:
    def make() -> Any:
        if algorithm == "maskable-ppo":
            return Masked(3, True, dtype)
        return Walk(3, discrete or algorithm in ("dqn", "qrdqn"), dtype)

    with counted() as calls:
        tensors, state, episodes = collected(algorithm, make, envs, lengths)
    with not_in_place():
        expected, other_state, other_episodes = collected(algorithm, make, envs, lengths)
    # a single step is never written in place: preparing it would take longer than its record
    assert sum(calls) == (0 if dtype is np.uint8 else sum(length > 1 for length in lengths))
    assert len(tensors) == len(expected)
    assert all(torch.equal(one, two) and one.dtype is two.dtype for one, two in zip(tensors, expected, strict=True))
    assert torch.equal(state, other_state)
    assert episodes == other_episodes


def test_rollouts_of_another_length_do_not_fit_into_the_memory_of_earlier_ones() -> None:
    """Several rollouts share a memory. A loop of a plugin may choose the length of each."""
    lengths = [2, 2, stepwise.SHARED_ROLLOUTS, stepwise.SHARED_ROLLOUTS + 1, 3]
    with counted() as calls:
        tensors, state, _ = collected("ppo", Walk, 2, lengths)
    assert all(calls)
    with not_in_place():
        expected, other_state, _ = collected("ppo", Walk, 2, lengths)
    assert all(torch.equal(one, two) for one, two in zip(tensors, expected, strict=True))
    assert torch.equal(state, other_state)


AGENTS: list[tuple[str, dict[str, Any]]] = [
    ("ppo", {"n_steps": 16, "batch_size": 32}),
    ("ppo", {"n_steps": 16, "batch_size": 32, "normalize": True}),
    ("a2c", {"n_steps": 5}),
    ("a2c", {"n_steps": 5, "normalize": True}),
    ("trpo", {"n_steps": 16}),
    ("dqn", {"learning_starts": 20, "train_freq": 4, "target_update_interval": 10}),
    ("dqn", {"learning_starts": 20, "train_freq": 4, "normalize": True}),
    ("qrdqn", {"learning_starts": 20, "train_freq": 3}),
    ("maskable-ppo", {"n_steps": 16, "batch_size": 32}),
    ("maskable-ppo", {"n_steps": 16, "batch_size": 32, "normalize": True}),
]


@pytest.mark.parametrize(("algorithm", "options"), AGENTS)
def test_agents_learn_the_same(algorithm: str, options: dict[str, Any]) -> None:
    def learned() -> list[torch.Tensor]:
        env = make_vec_env(Masked if algorithm == "maskable-ppo" else Walk, 2, vectorization="sync", seed=3)
        agent = rlsdk.make(algorithm, env=env, seed=0, device="cpu", **small(algorithm), **options)
        agent.learn(120)
        agent.learn(40)
        return list(agent.policy.state_dict().values())

    with counted() as calls:
        found = learned()
    assert sum(calls) > 3
    with not_in_place():
        expected = learned()
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))


class Follows(Callback):
    """Stores the records of all steps, and stops the training in one of them."""

    def __init__(self, last: int) -> None:
        self.last, self.records = last, list[Any]()

    def on_step(self, run: Any, step: Any) -> bool:
        self.records.append((step, step.stops, run.num_timesteps))
        return len(self.records) < self.last


@pytest.mark.parametrize("algorithm", ["ppo", "maskable-ppo", "dqn"])
@pytest.mark.parametrize("last", [1, 7, 16, 23, 32, 1000])
def test_callbacks_receive_every_step_and_stop_the_training(algorithm: str, last: int) -> None:
    def followed() -> tuple[list[Any], int, list[torch.Tensor], list[torch.Tensor]]:
        env = make_vec_env(Masked if algorithm == "maskable-ppo" else Walk, 2, vectorization="sync", seed=3)
        options = {"learning_starts": 10, "train_freq": 4} if algorithm == "dqn" else {"n_steps": 16, "batch_size": 32}
        agent: Any = rlsdk.make(algorithm, env=env, seed=0, device="cpu", **small(algorithm), **options)
        callback = Follows(last)
        agent.learn(64, callback=callback)
        at = agent.acting[0].observation
        return callback.records, agent.num_timesteps, leaves(at), list(agent.policy.state_dict().values())

    with counted() as calls:
        records, steps, at, weights = followed()
    with not_in_place():
        expected, other_steps, other_at, other_weights = followed()
    assert sum(calls) == len(calls) > 0 or algorithm == "dqn"
    assert len(records) == len(expected) == min(last, 32)
    assert steps == other_steps == 2 * min(last, 32)
    for (one, stops, number), (two, other_stops, other_number) in zip(records, expected, strict=True):
        assert (stops, number, one.episodes) == (other_stops, other_number, two.episodes)
        pairs = list(zip(leaves(plain(one)), leaves(plain(two)), strict=True))
        assert all(torch.equal(a, b) for a, b in pairs)
    assert all(torch.equal(a, b) for a, b in zip([*at, *weights], [*other_at, *other_weights], strict=True))


def plain(step: Any) -> Any:
    """The tensors of a step."""
    names = ("observation", "reward", "terminated", "truncated", "valid", "final_observation", "action")
    return tuple(getattr(step, name) for name in names)


def test_what_overrides_act_or_step_is_called() -> None:
    env = make_vec_env(Walk, 2, vectorization="sync", seed=3)
    policy = rlsdk.make("ppo", env=env, seed=0, device="cpu", **SMALL).parts.policy
    assert stepwise.in_place_of(policy, env, Generator()) is not None

    class Own(type(policy)):  # type: ignore[misc]
        def act(self, *args: Any, **kwargs: Any) -> Any:
            return super().act(*args, **kwargs)

    class Wrapper:
        def __getattr__(self, name: str) -> Any:
            return getattr(env, name)

        def step(self, action: Any) -> Any:
            return env.step(action)

    assert stepwise.in_place_of(policy, Wrapper(), Generator()) is None
    policy.__class__ = Own
    assert stepwise.in_place_of(policy, env, Generator()) is None
    at, calls = ActingState(env.reset(0), policy.initial_carry(2)), 0

    def act(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return type(policy).act(policy, *args, **kwargs)

    policy.__dict__["act"] = act
    collect(env, policy, at, 5, generator=Generator())
    assert calls == 5


def storage(env: Any, steps: int = 4, *, masks: bool = False) -> tuple[Observation, torch.Tensor, torch.Tensor]:
    count = env.num_envs
    mask = torch.zeros(steps + 1, count, 4, dtype=torch.bool) if masks else None
    seen = Observation(torch.zeros(steps + 1, count, 3), torch.zeros(steps + 1, count, dtype=torch.bool), mask)
    return seen, torch.zeros(steps, count, dtype=torch.int64), torch.zeros(steps, count)


def test_environments_step_in_place_only_where_nothing_is_lost() -> None:
    env: Any = make_vec_env(Walk, 2, vectorization="sync", seed=3)
    env.reset(0)
    seen, action, reward = storage(env)
    assert env.step_in_place(seen, action, reward) is not None
    for other in (seen.features.double(), torch.zeros(5, 2, 4), torch.zeros(5, 3, 3), {"a": seen.features}):
        assert env.step_in_place(replace(seen, features=other), action, reward) is None
    assert env.step_in_place(seen, torch.zeros(4, 2, 1), reward) is None
    assert env.step_in_place(*storage(env, masks=True)) is None
    env.keep_infos(True)
    assert env.step_in_place(seen, action, reward) is None
    env.keep_infos(False)
    env.select_info(["x"])
    assert env.step_in_place(seen, action, reward) is None
    masked: Any = make_vec_env(Masked, 2, vectorization="sync", seed=3)
    masked.reset(0)
    assert masked.step_in_place(*storage(masked)) is None
    assert masked.step_in_place(*storage(masked, masks=True)) is not None
    nested: Any = make_vec_env(lambda: gym.wrappers.TransformObservation(Walk(), lambda x: {"a": x}, NESTED), 2)
    nested.reset(0)
    assert nested.step_in_place(*storage(nested)) is None


def test_later_steps_do_not_change_a_rollout() -> None:
    env: Any = make_vec_env(lambda: Walk(discrete=False), 2, vectorization="sync", seed=3)
    policy = rlsdk.make("ppo", env=env, seed=0, device="cpu", **SMALL).parts.policy
    at = ActingState(env.reset(0), policy.initial_carry(2))
    rollout = collect(env, policy, at, 6, generator=Generator())
    before = [leaf.clone() for leaf in leaves((rollout.steps, rollout.last_observation))]
    env.step(torch.zeros(2, 2))
    env.reset()
    collect(env, policy, at, 6, generator=Generator())
    after = leaves((rollout.steps, rollout.last_observation))
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
    assert not bool((rollout.steps.action == 7.0).any())
