"""`RestoreOnDivergence`: training continues from a copy of the parameters after a divergence."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.callbacks import Callback, LambdaCallback, RestoreOnDivergence
from rlsdk.errors import DivergenceError, SettingsError
from rlsdk.registry.discovery import algorithms
from rlsdk.tree import flatten, is_finite
from rlsdk_datasets import RecordedOnly
from rlsdk_testing.subject import flat_state
from tests.expert_episodes import SEEN, VECTOR, recorded

ROLLOUT = {"n_steps": 16, "batch_size": 16, "policy_kwargs": {"net_arch": [8]}}
REPLAY = {"learning_starts": 20, "buffer_size": 500, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a2c": ("Pendulum-v1", {"n_steps": 16, "policy_kwargs": {"net_arch": [8]}}),
    "acer": ("CartPole-v1", {}),
    "acktr": ("Pendulum-v1", {}),
    "crossq": ("Pendulum-v1", REPLAY),
    "ddpg": ("Pendulum-v1", REPLAY),
    "discrete-sac": ("CartPole-v1", REPLAY),
    "dqn": ("CartPole-v1", REPLAY),
    "maskable-ppo": ("rlsdk/InvalidActionEnvDiscrete-v0", ROLLOUT),
    "ppo": ("Pendulum-v1", ROLLOUT),
    "pqn": ("CartPole-v1", ROLLOUT),
    "qrdqn": ("CartPole-v1", REPLAY),
    "recurrent-ppo": ("Pendulum-v1", {"n_steps": 16, "batch_size": 16}),
    "sac": ("Pendulum-v1", REPLAY),
    "td3": ("Pendulum-v1", REPLAY),
    "tqc": ("Pendulum-v1", REPLAY),
    "trpo": ("Pendulum-v1", ROLLOUT),
}
NOT_HERE = {
    "ars": "has no metrics of its parameters",
    "bc": "needs episodes",
    "cql": "needs episodes",
    "gail": "needs episodes",
    "iql": "needs episodes",
    "td3-bc": "needs episodes",
}


class Spoil(Callback):
    """A callback that sets every parameter of the policy to NaN at the given steps."""

    def __init__(self, *steps: int) -> None:
        self.steps, self.done = steps, 0

    def on_report(self, run: Any, report: Any) -> None:
        if self.done < len(self.steps) and run.num_timesteps >= self.steps[self.done]:
            self.done += 1
            with torch.no_grad():
                for parameter in run.agent.policy.parameters():
                    parameter.fill_(math.nan)


def made(algorithm: str, **settings: Any) -> Any:
    env, given = CASES.get(algorithm, ("CartPole-v1", {"n_delta": 2} if algorithm == "ars" else {}))
    return rlsdk.make(algorithm, **{"env": env, "seed": 0, **given, **settings})


def test_every_algorithm_is_here() -> None:
    assert {plugin.id for plugin in algorithms() if plugin.distribution.startswith("rlsdk-")} == {*CASES, *NOT_HERE}


@pytest.mark.parametrize("algorithm", CASES)
def test_training_continues_from_the_copy(algorithm: str) -> None:
    agent, seen = made(algorithm), list[int]()
    restore = RestoreOnDivergence(32)
    count = LambdaCallback(on_divergence=lambda run, error: seen.append(run.num_timesteps))
    with pytest.warns(RuntimeWarning, match=r"restored \(1 of at most 3 times\)"):
        agent.learn(240, callback=[Spoil(100), count, restore])
    assert restore.restored == 1
    assert len(seen) == 1
    assert 100 <= seen[0] < 160  # the divergence is found within one round
    assert agent.num_timesteps >= 240
    assert is_finite(flat_state(agent))
    agent.learn(32, reset_num_timesteps=False)


def test_rollouts_that_diverged_are_not_replayed() -> None:
    """The replay buffer of ACER stores probabilities and recurrent states of rollouts; all of them must stay finite."""
    settings = {"n_steps": 8, "replay_start": 32, "buffer_size": 1000}
    for policy in ("MlpPolicy", "MlpLstmPolicy"):
        agent, restore = made("acer", policy=policy, **settings), RestoreOnDivergence(32)
        with pytest.warns(RuntimeWarning, match="restored"):
            agent.learn(400, callback=[Spoil(100), restore])
        assert restore.restored == 1
        stored = flatten(agent.replay_buffer.state_dict()).values()
        assert all(is_finite(each) for each in stored if isinstance(each, torch.Tensor))


@pytest.mark.parametrize("algorithm", ["ddpg", "dqn", "qrdqn", "sac", "td3", "tqc"])
def test_a_prioritized_memory_survives(algorithm: str) -> None:
    agent, restore = made(algorithm, replay_buffer_class="prioritized"), RestoreOnDivergence(32)
    with pytest.warns(RuntimeWarning, match="restored"):
        agent.learn(240, callback=[Spoil(100), restore])
    assert restore.restored == 1
    assert agent.num_timesteps >= 240


class Endless(gymnasium.Env[Any, Any]):
    """An environment whose episode never ends, so the recurrent state is not reset by a new episode."""

    observation_space = SEEN

    def __init__(self, action_space: spaces.Space[Any] | None = None) -> None:
        self.action_space, self.resets = spaces.Discrete(2) if action_space is None else action_space, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.resets += 1
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.full(2, 0.5, np.float32), float(np.sum(action)), False, False, {}


@pytest.mark.parametrize("policy", ["MlpLstmPolicy", "MlpGruPolicy"])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_memory_that_diverged_is_emptied(policy: str, groups: int) -> None:
    envs = [Endless() for _ in range(groups)]
    vector = rlsdk.environments.make_vec_env([lambda env=env: env for env in envs], vectorization="sync")
    settings = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "env_groups": groups, "policy": policy}
    agent, restore = rlsdk.make("recurrent-ppo", env=vector, seed=0, **settings), RestoreOnDivergence(32)
    with pytest.warns(RuntimeWarning, match="restored"):
        agent.learn(320, callback=[Spoil(100), restore])
    assert restore.restored == 1
    assert is_finite(tuple(state.carry for state in agent.acting))
    assert [env.resets for env in envs] == [2] * groups


def test_a_memory_that_diverged_is_emptied_for_a_later_call_too() -> None:
    agent = rlsdk.make("recurrent-ppo", env=Endless(), seed=0, n_steps=16, batch_size=16)
    before = copy.deepcopy(agent.get_parameters())
    with pytest.raises(DivergenceError):
        agent.learn(160, callback=Spoil(32))
    agent.set_parameters(before)
    agent.learn(64, reset_num_timesteps=False)


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.full
def test_memories_in_collectors_that_diverged_are_emptied(lag: int) -> None:
    env = rlsdk.environments.make_vec_env("rlsdk/CartPoleNoVel-v1", 2, collectors=2, max_lag=lag)
    agent, restore = rlsdk.make("recurrent-ppo", env=env, seed=0, n_steps=16, batch_size=16), RestoreOnDivergence(32)
    with pytest.warns(RuntimeWarning, match="restored"):
        agent.learn(320, callback=[Spoil(96), restore])
    assert restore.restored == 1
    env.close()


def test_a_copy_changes_nothing() -> None:
    plain, watched = (made("sac").learn(100, callback=given) for given in (None, RestoreOnDivergence(16)))
    other = flat_state(watched)
    assert all(torch.equal(value, other[name]) for name, value in flat_state(plain).items())


def test_what_is_restored_is_the_copy() -> None:
    stored = dict[str, torch.Tensor]()
    restore, at = RestoreOnDivergence(48), []

    def keep(run: Any, report: Any) -> None:
        if run.num_timesteps == 48:
            stored.update(flat_state(run.agent))

    def compare(run: Any, error: DivergenceError) -> None:
        at.append(run.num_timesteps)
        assert all(torch.equal(value, stored[name]) for name, value in flat_state(run.agent).items())

    watch = LambdaCallback(on_report=keep, on_divergence=compare)
    with pytest.warns(RuntimeWarning, match="the parameters of step 48 were restored"):
        made("ppo").learn(96, callback=[Spoil(64), restore, watch])
    assert at == [64]


def test_it_gives_up() -> None:
    agent, restore = made("sac"), RestoreOnDivergence(10, at_most=2)
    with pytest.warns(RuntimeWarning, match="restored"), pytest.raises(DivergenceError):
        agent.learn(200, callback=[Spoil(50, 70, 90, 110), restore])
    assert restore.restored == 2
    assert agent.num_timesteps < 100


def test_where_the_copy_does_not_fit_the_divergence_is_the_error() -> None:
    agent, restore = made("ppo"), RestoreOnDivergence(1000)

    def enlarge(run: Any, report: Any) -> None:
        if run.num_timesteps == 32:
            run.agent.policy.register_buffer("further", torch.zeros(2))

    with pytest.raises(DivergenceError, match="diverged") as caught:
        agent.learn(240, callback=[Spoil(64), LambdaCallback(on_report=enlarge), restore])
    assert any("step 0 could not be restored" in note for note in caught.value.__notes__)
    assert restore.restored == 0


def test_a_diverged_agent_is_not_copied() -> None:
    """A copy is due when the parameters are NaN but no metric shows it yet; the earlier copy is used."""
    agent, restore = made("sac"), RestoreOnDivergence(50)
    with pytest.warns(RuntimeWarning, match="the parameters of step 0 were restored"):
        agent.learn(120, callback=[Spoil(50), restore])
    assert is_finite(flat_state(agent))


def test_without_it_training_stops() -> None:
    with pytest.raises(DivergenceError, match="not finite"):
        made("sac").learn(200, callback=Spoil(50))


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.full
def test_collectors_get_the_restored_weights(lag: int) -> None:
    env = rlsdk.environments.make_vec_env("Pendulum-v1", 2, collectors=2, max_lag=lag)
    agent = rlsdk.make("ppo", env=env, seed=0, **ROLLOUT)
    with pytest.warns(RuntimeWarning, match="restored"):
        agent.learn(320, callback=[Spoil(96), RestoreOnDivergence(32)])
    assert agent.num_timesteps >= 320
    assert is_finite(flat_state(agent))
    env.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"every": 0}, "every = 0"),
        ({"every": 1.5}, "every = 1.5"),
        ({"at_most": 0}, "at_most = 0"),
        ({"at_most": True}, "at_most = True"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        RestoreOnDivergence(**arguments)


def test_earlier_parameters_may_be_set_between_rounds_and_trainings() -> None:
    """The parameters of PPO include the number of updates, which becomes smaller."""
    agent = made("ppo")
    before = copy.deepcopy(agent.get_parameters())
    agent.learn(64)
    agent.set_parameters(before)
    undo = LambdaCallback(on_report=lambda run, report: run.agent.set_parameters(before))
    agent.learn(64, reset_num_timesteps=False, callback=undo)
    assert agent.num_timesteps == 128
    assert all(torch.equal(value, before_value) for value, before_value in _pairs(flat_state(agent), before))


@pytest.mark.parametrize("algorithm", sorted({*CASES, "ars"}))
@pytest.mark.parametrize("normalize", [None, True])
def test_parameters_of_the_start_may_be_set(algorithm: str, normalize: bool | None) -> None:
    """At the start, optimizers have no moments and ACKTR has no statistics of the Fisher information."""
    if normalize and algorithm == "maskable-ppo":
        pytest.skip("its environment has no float observations")
    agent = made(algorithm, normalize=normalize)
    before = copy.deepcopy(agent.get_parameters())
    agent.learn(400 if algorithm == "ars" else 100)
    agent.set_parameters(before)
    assert_same(agent.get_parameters(), before)
    agent.learn(100, reset_num_timesteps=False)


@pytest.mark.parametrize("algorithm", sorted({*CASES, *NOT_HERE}))
def test_parameters_that_were_set_are_not_those_of_the_giver(algorithm: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {}
    if NOT_HERE.get(algorithm) == "needs episodes":
        settings["dataset"] = recorded(tmp_path / "data", VECTOR)
        settings |= {"env": Endless(VECTOR), **ROLLOUT} if algorithm == "gail" else {"env": RecordedOnly(SEEN, VECTOR)}
    giver, taker = made(algorithm, **settings), made(algorithm, **settings)

    def learn(agent: Any) -> None:
        agent.train(8) if algorithm in ("bc", "cql", "iql", "td3-bc") else agent.learn(100)

    learn(giver)
    given = giver.get_parameters()
    before = copy.deepcopy(given)
    taker.set_parameters(given)
    assert_same(taker.get_parameters(), before)
    learn(taker)
    assert_same(given, before)
    assert_same(giver.get_parameters(), before)


def assert_same(found: Any, wanted: Any) -> None:
    one, other = flatten(found), flatten(wanted)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name], name


def _pairs(flat: dict[str, torch.Tensor], nested: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    other = flatten(nested)
    return [(value, other[name]) for name, value in flat.items() if name in other]  # optimizers were empty
