"""Settings that have no effect because of other settings: a warning names them, and what they need."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import rlsdk

NO_MEMORY = "policy_kwargs.{} has no effect: the policy 'MlpPolicy' has no memory; choose one with a memory"
NO_SDE = "{} has no effect: it needs use_sde = true; set that too, or leave it out"


def warned(algorithm: str, env: str, **settings: Any) -> list[str]:
    """Make an agent and return the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rlsdk.make(algorithm, env=env, **settings)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("algorithm", "env", "settings", "expected"),
    [
        ("ppo", "CartPole-v1", {"policy_kwargs": {"lstm_hidden_size": 8}}, [NO_MEMORY.format("lstm_hidden_size")]),
        ("acer", "CartPole-v1", {"policy_kwargs": {"n_lstm_layers": 2}}, [NO_MEMORY.format("n_lstm_layers")]),
        ("a2c", "Pendulum-v1", {"sde_sample_freq": 4}, [NO_SDE.format("sde_sample_freq")]),
        ("trpo", "Pendulum-v1", {"sde_sample_freq": 4}, [NO_SDE.format("sde_sample_freq")]),
        (
            "tqc",
            "Pendulum-v1",
            {"use_sde_at_warmup": True, "policy_kwargs": {"clip_mean": 1.0}},
            [NO_SDE.format("use_sde_at_warmup"), NO_SDE.format("policy_kwargs.clip_mean")],
        ),
    ],
)
def test_settings_without_effect_are_named(
    algorithm: str, env: str, settings: dict[str, Any], expected: list[str]
) -> None:
    found = warned(algorithm, env, **settings)
    assert len(found) == len(expected), found
    for text, beginning in zip(found, expected, strict=True):
        assert text.startswith(beginning)


@pytest.mark.parametrize(
    ("algorithm", "env", "settings"),
    [
        ("ppo", "CartPole-v1", {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 8}}),
        ("ppo", "CartPole-v1", {"policy_kwargs": {"lstm_hidden_size": 256}}),
        ("ppo", "Pendulum-v1", {"use_sde": True, "sde_sample_freq": 4}),
        ("sac", "Pendulum-v1", {"use_sde": True, "policy_kwargs": {"log_std_init": -2.0}}),
    ],
)
def test_those_with_an_effect_and_defaults_are_not(algorithm: str, env: str, settings: dict[str, Any]) -> None:
    assert warned(algorithm, env, **settings) == []
