"""Wrong use of an extension point of the SDK: an error of one line that names the plugin, the part and the fix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlsdk
from rlsdk.agent import agent_class
from rlsdk.errors import DivergenceError, PluginError, RlsdkError, UnsupportedSpaceError
from rlsdk.registry import load
from rlsdk_envs.toy import AnySpaceEnv, ExtraInfo
from rlsdk_testing.datasets import random_dataset
from tests.example_plugins import installed_examples
from tests.networks.test_own_networks import VECTOR, Net


@pytest.fixture(scope="module", autouse=True)
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the example plugins."""
    with installed_examples(tmp_path_factory.mktemp("examples")):
        yield


def one_line(error: RlsdkError, *words: str) -> None:
    assert "\n" not in str(error)
    for word in words:
        assert word in str(error)


def test_population_methods_and_data_sets_refuse_info(tmp_path: Path) -> None:
    env = ExtraInfo(gymnasium.make("CartPole-v1"), ("cost",))
    evolution = attrs.evolve(load("cross-entropy"), info=("cost",))
    with pytest.raises(PluginError) as caught:
        agent_class(evolution)("LinearPolicy", env)
    one_line(
        caught.value, "'cross-entropy' declares info = ['cost']", "PopulationPlan", "into the environment's reward"
    )
    cloning = attrs.evolve(load("cloning"), info=("cost",))
    with pytest.raises(PluginError) as caught:
        agent_class(cloning)("MlpPolicy", None, dataset=random_dataset(env, tmp_path / "data"))
    one_line(caught.value, "'cloning' declares info = ['cost']", "OfflinePlan", "hold no info")


@pytest.mark.parametrize(
    ("observation", "action", "words"),
    [
        (spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Discrete(2), "recorded with observations"),
        (VECTOR, spaces.Discrete(4), "recorded with actions"),
        (spaces.Box(-9.0, 2.0, (3,), np.float32), spaces.Discrete(2), "with other bounds"),
    ],
)
def test_a_data_set_of_other_spaces(
    observation: spaces.Box, action: spaces.Discrete, words: str, tmp_path: Path
) -> None:
    data = random_dataset(AnySpaceEnv(observation, action, 5), tmp_path / "data")
    with pytest.raises(UnsupportedSpaceError) as caught:
        rlsdk.make("cloning", env=AnySpaceEnv(VECTOR, spaces.Discrete(2), 5), dataset=data)
    one_line(caught.value, "cloning: the data set 'data'", words, "record it again")


def test_a_data_set_of_spaces_that_the_algorithm_cannot_learn(tmp_path: Path) -> None:
    data = random_dataset(AnySpaceEnv(VECTOR, spaces.MultiDiscrete([2, 3]), 5), tmp_path / "data")
    with pytest.raises(UnsupportedSpaceError) as caught:
        rlsdk.make("cloning", env=None, dataset=data)
    one_line(caught.value, "Behavior cloning", "MultiDiscrete", "supported action spaces: Discrete, Box")


class BreaksLater(Net):
    """A network that returns NaN from its tenth call on."""

    def __init__(self, observation_space: spaces.Space[object], output_dim: int) -> None:
        super().__init__(observation_space, output_dim)
        self.calls = 0

    def forward(self, observations: object) -> object:
        self.calls += 1
        return super().forward(observations) * (1.0 if self.calls < 10 else float("nan"))


@pytest.mark.parametrize("algorithm", ["qrdqn", "trpo", "maskable-ppo"])
def test_a_network_that_breaks_while_it_learns(algorithm: str) -> None:
    names = ("network_class",) if algorithm == "qrdqn" else ("actor_class", "critic_class")
    sizes = {"learning_starts": 4, "batch_size": 4} if algorithm == "qrdqn" else {"n_steps": 8, "batch_size": 4}
    networks = dict.fromkeys(names, BreaksLater)
    model = rlsdk.make(
        algorithm, env=AnySpaceEnv(VECTOR, spaces.Discrete(3), 5), policy_kwargs=networks, seed=0, **sizes
    )
    with pytest.raises(DivergenceError) as caught:
        model.learn(64)
    one_line(caught.value, "nan", "check custom networks")
