"""Short rollouts that follow one another share a storage. They equal those with their own storage."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator

import rlsdk
from rlsdk.callbacks import Callback
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault
from rlsdk.records import ActingState, EnvStep, Observation, Rollout
from rlsdk.runtime.files import LastPrepared
from rlsdk.training import stepwise as in_place
from rlsdk.training.stepwise import SHARED_BYTES, InPlaceSteps, RolloutStorage, act_and_step
from rlsdk.tree import leaves
from rlsdk_kernels.compiled_library import may_compile
from tests.training.test_collecting_in_place import Masked, Walk, small

needs_compiled = pytest.mark.skipif(not may_compile(), reason="this installation uses no compiled kernels")
pytestmark = [needs_compiled, pytest.mark.kernels("policies act in place in compiled code")]
Parts = tuple[Any, Any, ActingState[Any], Generator]


def parts(algorithm: str, make: Callable[[], Any], envs: int) -> Parts:
    """(environments, policy, acting state, generator)."""
    env = make_vec_env(make, envs, vectorization="sync", seed=3)
    policy = rlsdk.make(algorithm, env=env, seed=0, device="cpu", **small(algorithm)).parts.policy
    if algorithm in ("dqn", "qrdqn"):
        policy.epsilon.fill_(0.3)
    return env, policy, ActingState(env.reset(0), policy.initial_carry(envs)), Generator().manual_seed(3)


def in_place_of(env: Any, policy: Any, generator: Generator) -> InPlaceSteps:
    found = in_place.in_place_of(policy, env, generator)
    assert found is not None
    return found


def after(rollout: Rollout[Any, Any]) -> ActingState[Any]:
    return ActingState(rollout.last_observation, rollout.last_carry)


def stepwise(env: Any, policy: Any, at: ActingState[Any], length: int, generator: Generator) -> Rollout[Any, Any]:
    return act_and_step(
        env, lambda seen, carry: policy.act(seen, carry, deterministic=False, generator=generator), at, length
    )


def tensors(rollout: Rollout[Any, Any]) -> list[torch.Tensor]:
    return leaves((rollout.steps, rollout.last_observation, rollout.final_observations))


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return len(one) == len(two) and all(map(torch.equal, one, two))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["ppo", "a2c", "dqn", "qrdqn", "maskable-ppo"]),
    st.integers(1, 3),
    st.lists(st.sampled_from([2, 2, 2, 5]), min_size=2, max_size=12),
    st.booleans(),
    st.lists(st.integers(0, 11), max_size=2),
)
def test_rollouts_are_those_of_single_steps(
    algorithm: str, envs: int, lengths: list[int], discrete: bool, resets: list[int]
) -> None:
    def make() -> Any:
        return Masked() if algorithm == "maskable-ppo" else Walk(3, discrete or algorithm in ("dqn", "qrdqn"))

    env, policy, at, generator = parts(algorithm, make, envs)
    other, _, there, other_generator = parts(algorithm, make, envs)
    acting, copies = in_place_of(env, policy, generator), list[tuple[list[torch.Tensor], list[torch.Tensor]]]()
    for number, length in enumerate(lengths):
        if number in resets:
            at, there = ActingState(env.reset(number), at.carry), ActingState(other.reset(number), there.carry)
        rollout = acting.collect(at, length)
        expected = stepwise(other, policy, there, length, other_generator)
        assert rollout is not None
        assert same(tensors(rollout), tensors(expected))
        assert rollout.episodes == expected.episodes
        copies.append((tensors(rollout), [leaf.clone() for leaf in tensors(rollout)]))
        at, there = after(rollout), after(expected)
    assert torch.equal(generator.get_state(), other_generator.get_state())
    assert all(same(one, two) for one, two in copies), "a later rollout changed an earlier one"


def test_rollouts_share_a_storage_and_its_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    made, prepared = list[int](), list[int]()
    real = RolloutStorage.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        made.append(len(self.reward))

    monkeypatch.setattr(RolloutStorage, "__init__", init)
    env, policy, at, generator = parts("a2c", Walk, 2)
    writing = env._writing
    monkeypatch.setattr(env, "_writing", lambda *args: prepared.append(1) or writing(*args))
    acting = in_place_of(env, policy, generator)
    addresses = list[int]()
    for _ in range(66):
        rollout = acting.collect(at, 5)
        assert rollout is not None
        addresses.append(rollout.steps.action.data_ptr())
        at = after(rollout)
    assert made == [5, 5 * 64, 5 * 64]  # the first one does not know yet that others follow
    assert len(prepared) == 3
    assert set(np.diff(addresses[1:65])) == {5 * 2 * 8}
    assert rollout.last_observation.features.untyped_storage().nbytes() == 2 * 3 * 4


class Stops:
    """Environments whose step after `stop_at` others ends the training, as a callback does."""

    def __init__(self, env: Any) -> None:
        self.env, self.stop_at = env, -1

    def step_in_place(self, observation: Observation, action: torch.Tensor, reward: torch.Tensor) -> Any:
        inner = self.env.step_in_place(observation, action, reward)

        def step(t: int) -> EnvStep | None:
            ended: EnvStep | None = inner(t)
            self.stop_at -= 1
            if self.stop_at != -1:
                return ended
            none = torch.zeros(2, dtype=torch.bool)
            record = EnvStep(Observation(observation.features[t + 1], none), reward[t], none, none, ~none)
            return replace(ended or record, stops=True)

        return step


@pytest.mark.parametrize("event", ["reset", "another length", "stopped"])
def test_a_storage_ends_where_rollouts_do_not_follow(event: str) -> None:
    env, policy, at, generator = parts("a2c", Walk, 2)
    other, _, there, other_generator = parts("a2c", Walk, 2)
    stops = Stops(env)
    acting = InPlaceSteps(policy.act_in_place, stops, generator)  # type: ignore[arg-type]
    for number in range(68):
        length, done = 2, 2
        if number == 64:  # the 63rd rollout of the second storage
            if event == "reset":
                at, there = ActingState(env.reset(1), at.carry), ActingState(other.reset(1), there.carry)
            if event == "another length":
                length = done = 5
            if event == "stopped":
                stops.stop_at, done = 0, 1
        rollout, expected = acting.collect(at, length), stepwise(other, policy, there, done, other_generator)
        assert rollout is not None
        assert rollout.stopped == (event == "stopped" and number == 64)
        assert same(tensors(rollout), tensors(expected))
        at, there = after(rollout), after(expected)


def test_extras_are_those_of_the_rollout() -> None:
    _, _, at, _ = parts("a2c", Walk, 2)
    storage = RolloutStorage(at.observation, 3, several=True, normalized=False)
    action = torch.arange(2 * 3 * 64).view(3 * 64, 2)
    for number in range(3):
        steps = storage.steps(3, action, {"twice": 2 * action})
        assert torch.equal(steps.extras["twice"], 2 * action[3 * number : 3 * number + 3])
        assert torch.equal(steps.action, action[3 * number : 3 * number + 3])
        storage.finished(steps, ())


def test_large_rollouts_have_their_own_storage_and_nothing_holds_it() -> None:
    env, policy, at, generator = parts("ppo", lambda: Walk(64), 2)
    acting, length = in_place_of(env, policy, generator), SHARED_BYTES // (64 * 4 * 2) + 1
    for _ in range(2):
        rollout = acting.collect(at, length)
        assert rollout is not None
        at = after(rollout)
    base = rollout.steps.observation.features._base
    assert base is not None
    assert len(base) == length + 1
    dead = ref(base)
    del rollout, base
    assert dead() is None


class Planned(Walk):
    """Ends episodes, and fails, only as `plan` says."""

    plan: list[str]

    def step(self, action: Any) -> Any:
        seen, reward, _, _, info = super().step(action)
        now = self.plan.pop() if self.plan else ""
        if now == "fails":
            raise ValueError("broken")
        return seen, reward, now == "ends", False, info


def test_a_rollout_that_failed_leaves_nothing_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planned, "plan", plan := list[str](), raising=False)
    env, policy, at, generator = parts("a2c", Planned, 1)
    acting = in_place_of(env, policy, generator)
    for _ in range(3):
        rollout = acting.collect(at, 5)
        assert rollout is not None
        at = after(rollout)
    plan += ["fails", "ends"]
    with pytest.raises(EnvironmentFault, match="broken"):
        acting.collect(at, 5)
    rollout = acting.collect(at, 5)
    assert rollout is not None
    assert not rollout.steps.terminated.any()
    assert not rollout.steps.observation.is_first.any()
    assert not rollout.last_observation.is_first.any()


@pytest.mark.parametrize(("algorithm", "discrete"), [("a2c", False), ("a2c", True), ("dqn", True)])
def test_weights_and_numbers_with_other_memory_are_read(algorithm: str, discrete: bool) -> None:
    env, policy, at, generator = parts(algorithm, lambda: Walk(3, discrete), 2)
    other, twin, there, other_generator = parts(algorithm, lambda: Walk(3, discrete), 2)
    acting = in_place_of(env, policy, generator)
    for number in range(6):
        if number > 1:
            for network in (policy, twin):
                for value in network.parameters():
                    value.data = 10.0 * value.data.flip(0)
                if algorithm == "dqn":
                    network.epsilon.data = 0.5 * network.epsilon
        rollout, expected = acting.collect(at, 3), stepwise(other, twin, there, 3, other_generator)
        assert rollout is not None
        assert same(tensors(rollout), tensors(expected))
        at, there = after(rollout), after(expected)


def test_a_layer_that_was_replaced_acts() -> None:
    env, policy, at, generator = parts("a2c", Walk, 2)
    acting = in_place_of(env, policy, generator)
    for number in range(4):
        rollout = acting.collect(at, 3)
        assert rollout is not None
        if number == 2:
            policy.head.linear = torch.nn.Linear(8, 4)
            torch.nn.init.constant_(policy.head.linear.bias, 0.0)
            with torch.no_grad():
                policy.head.linear.weight.zero_()
                policy.head.linear.bias[2] = 1e6
        at = after(rollout)
    assert (rollout.steps.action == 2).all()


class Toggling(Callback):
    """Demands the infos of steps in some rounds only."""

    def __init__(self) -> None:
        self.rounds, self.infos = 0, list[bool]()

    def on_step(self, run: Any, step: Any) -> None:
        self.infos.append(step.infos is not None)

    def on_report(self, run: Any, report: Any) -> None:
        self.rounds += 1
        run.agent.env.keep_infos(self.rounds % 2 == 1)


def test_infos_that_are_demanded_between_rollouts_are_there() -> None:
    env = make_vec_env(Walk, 2, vectorization="sync", seed=3)
    agent = rlsdk.make("a2c", env=env, seed=0, device="cpu", n_steps=5, **small("a2c"))
    callback = Toggling()
    agent.learn(60, callback=callback)
    assert callback.infos == ([False] * 5 + [True] * 5) * 3


def test_prepared_results_are_found_only_for_the_same_objects_and_while_they_are_held() -> None:
    class Result:
        pass

    last: LastPrepared[tuple[Result, Result]] = LastPrepared()
    one, two, results = [1], [2], (Result(), Result())
    assert last.find(one, two) is None
    assert last.remember(results, one, two) is results
    assert last.find(one, two) == results
    assert last.find(one, [2]) is None
    assert last.find(one) is None
    assert copy.deepcopy(last).find(one, two) is None
    held = results[0]
    del results
    assert last.find(one, two) is None, "one of the results is gone"
    assert held is not None
