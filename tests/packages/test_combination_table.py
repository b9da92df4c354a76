"""The table of combinations agrees with manifests and settings, and every combination in it works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest

import rlsdk
from rlsdk.registry import find, load
from rlsdk.settings.load import data_settings
from rlsdk_envs.toy import BitFlippingEnv
from rlsdk_testing.datasets import random_dataset
from tests.combination_table import BEGIN, OURS, PAGE, SWITCHES, memories, settings_of, with_table

REPLAY: dict[str, dict[str, Any]] = {
    "uniform": {},
    "n-step": {"n_steps": 3},
    "prioritized": {"replay_buffer_class": "prioritized", "n_steps": 3},
    "hindsight": {"replay_buffer_class": "hindsight"},
}
SMALL = {"learning_starts": 10, "buffer_size": 200, "batch_size": 8, "train_freq": 1, "seed": 0}


def named(trait: str) -> list[str]:
    return [name for name in OURS if trait in find(name).manifest.traits]  # type: ignore[union-attr]


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == 1
    assert text == with_table(text), "write it again: python -m tests.combination_table"


def has_setting(name: str, setting: str) -> bool:
    return setting in {field.name for field in attrs.fields(load(name).config_type)}


@pytest.mark.parametrize("kind", REPLAY)
@pytest.mark.parametrize("name", [name for name in named("replay") if has_setting(name, "replay_buffer_class")])
def test_every_memory_of_the_table_learns(name: str, kind: str) -> None:
    env = BitFlippingEnv(3, continuous="Box" in find(name).manifest.actions)  # type: ignore[union-attr]
    model = rlsdk.make(name, policy="MultiInputPolicy", env=env, **SMALL, **REPLAY[kind]).learn(40)
    assert model.cursor.updates > 0
    if kind == "prioritized":
        errors: Any = model.parts.algorithm
        assert errors.td_error.shape == (8,)


@pytest.mark.parametrize("name", OURS)
def test_recurrent_policies_remember(name: str, tmp_path: Path) -> None:
    manifest = find(name).manifest
    assert manifest is not None
    for kind in memories(manifest):
        env: Any = gymnasium.make("CartPole-v1")
        recordings = data_settings(load(name).config_type)
        data: dict[str, Any] = (
            dict.fromkeys(recordings, random_dataset("CartPole-v1", tmp_path / "demo")) if recordings else {}
        )
        data |= {"n_steps": 16} if has_setting(name, "n_steps") else {}
        model: Any = rlsdk.make(name, policy=f"Mlp{kind.title()}Policy", env=env, seed=0, **data).learn(16)
        _, state = model.predict(np.zeros(4, np.float32))
        assert state is not None
        assert type(model.policy.memory.cells).__name__ == kind
    if not memories(manifest):
        assert not any("Lstm" in policy or "Gru" in policy for policy in manifest.policies)


@pytest.mark.parametrize("name", [name for name in OURS if settings_of(load(name).config_type) & set(SWITCHES)])
def test_switches_can_be_combined(name: str, tmp_path: Path) -> None:
    config = load(name).config_type
    settings: dict[str, Any] = {**SMALL, "double_q": True, "replay_buffer_class": "prioritized", "n_steps": 2}
    # offline algorithms have a data set in place of a replay buffer
    settings = {setting: value for setting, value in settings.items() if has_setting(name, setting)}
    settings |= {each: random_dataset("CartPole-v1", tmp_path / "demo") for each in data_settings(config)}
    dueling = "policy_kwargs.dueling" in settings_of(config)
    model = rlsdk.make(name, env="CartPole-v1", **settings, **({"policy_kwargs": {"dueling": True}} if dueling else {}))
    model.learn(40)
    assert hasattr(model.policy.head, "advantage") == dueling
    assert model.cursor.updates > 0
