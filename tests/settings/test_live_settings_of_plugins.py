"""Settings of a third-party plugin: those that it lists as live can be assigned, all others are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import rlsdk
from rlsdk.errors import PluginError, SettingsError, UsageError
from rlsdk.interfaces import BuildContext, Parts
from rlsdk.registry import AlgorithmSpec, unregister
from rlsdk_envs.toy import BitFlippingEnv, IdentityEnv
from tests import small_algorithms
from tests.small_algorithms import Config, Reinforce, register_reinforce


@pytest.fixture(autouse=True)
def gone_afterwards() -> Iterator[None]:
    yield
    with contextlib.suppress(PluginError):
        unregister("reinforce")


class Adjustable(Reinforce):
    """An algorithm that takes over a new `rate` and refuses values above 1."""

    def reconfigure(self, config: Config) -> None:
        self.rate = config.rate
        if config.rate > 1.0:
            raise UsageError("rate is too much for this update")


def test_what_is_listed_reaches_parts_and_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = small_algorithms.build

    def adjustable(context: BuildContext, config: Config) -> Parts:
        parts = plain(context, config)
        return Parts(parts.policy, Adjustable(parts.policy, config.rate), parts.plan)  # type: ignore[arg-type]

    monkeypatch.setattr(small_algorithms, "build", adjustable)
    register_reinforce(live=("rate", "n_steps"))
    agent = rlsdk.make("reinforce", env=IdentityEnv(3), seed=0)
    agent.rate, agent.n_steps = 0.5, 8
    assert agent.parts.algorithm.rate == 0.5  # type: ignore[attr-defined]
    assert agent.learn(1).num_timesteps == 8
    with pytest.raises(UsageError, match="rate is too much"):
        agent.rate = 2.0
    assert agent.rate == agent.parts.algorithm.rate == 0.5  # type: ignore[attr-defined]
    with pytest.raises(
        UsageError, match=r"gamma cannot change while the agent lives; .*REINFORCE.load\(path, gamma=value\)"
    ):
        agent.gamma = 0.5
    agent.verbose = 1


def test_a_plugin_that_lists_nothing_refuses() -> None:
    register_reinforce()
    agent = rlsdk.make("reinforce", env=IdentityEnv(3), seed=0)
    with pytest.raises(UsageError, match="rate cannot change"):
        agent.rate = 0.5
    assert agent.rate == 0.1


def test_a_list_without_a_way_to_take_it_is_a_fault_of_the_plugin() -> None:
    register_reinforce(live=("rate",))
    with pytest.raises(PluginError, match=r"declares live settings .*rate.*, but Reinforce has no method reconfigure"):
        rlsdk.make("reinforce", env=IdentityEnv(3))
    context: Any = {"id": "x", "family": "on-policy", "policies": ("MlpPolicy",), "build": small_algorithms.build}
    with pytest.raises(TypeError, match=r"live of 'x' names \['rat'\]; the settings are policy, env, "):
        AlgorithmSpec(config_type=Config, live=("rat",), **context)


def test_a_hindsight_memory_takes_gamma() -> None:
    agent = rlsdk.make(
        "qrdqn",
        env=BitFlippingEnv(3),
        policy="MultiInputPolicy",
        replay_buffer_class="hindsight",
        learning_starts=10,
        buffer_size=200,
        batch_size=8,
        seed=0,
    ).learn(60)
    agent.gamma = 0.5
    assert agent.replay_buffer.gamma == agent.replay_buffer.inner.gamma == 0.5
    with pytest.raises(SettingsError, match="looks one step ahead"):
        agent.n_steps = 3
    assert agent.n_steps == 1
    agent.learn(20, reset_num_timesteps=False)
