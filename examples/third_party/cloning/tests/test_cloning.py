"""Cloning learns recorded actions without an environment, and resumed training gives exactly the same results."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gymnasium import spaces

import rlsdk
import rlsdk.errors
from rlsdk.environments import to_space
from rlsdk.errors import ArtifactError, UnsupportedSpaceError, UsageError
from rlsdk.tree import flatten
from rlsdk_datasets import RecordedEpisode, write_episodes

SEEN, CHOICE, VECTOR = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2, start=3), spaces.Box(-2.0, 2.0, (1,))


def recorded(path: Path, action_space: spaces.Space, episodes: int = 6) -> Path:
    """Write episodes of an expert whose action depends on the first of two numbers, and return their path."""
    dice, made = torch.Generator().manual_seed(0), []
    for seed in range(episodes):
        seen = torch.rand(41, 2, generator=dice) * 2 - 1
        action = (seen[:-1, 0] > 0).long() + 3 if isinstance(action_space, spaces.Discrete) else 2 * seen[:-1, :1]
        made.append(RecordedEpisode(seen, action, torch.ones(40), terminated=seed % 2 == 0, seed=seed))
    return write_episodes(path, made, to_space(SEEN), to_space(action_space))


def test_it_does_what_the_expert_did(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE)
    agent = rlsdk.make("cloning", env=None, dataset=data, held_out=0.3, seed=0, batch_size=64).learn(400)
    assert agent.num_timesteps == 400, "the unit of an offline plan is an update"
    actions = [int(agent.predict([x, 0.3], deterministic=True)[0]) for x in (-0.8, -0.2, 0.2, 0.8)]
    assert actions == [3, 3, 4, 4]
    data = recorded(tmp_path / "vector", VECTOR)
    agent = rlsdk.make("cloning", env=None, dataset=data, seed=0, batch_size=64, normalize=True).learn(1500)
    for x in (-0.5, 0.1, 0.6):
        assert float(agent.predict([x, -0.3], deterministic=True)[0][0]) == pytest.approx(2 * x, abs=0.3)


def test_it_goes_on_to_the_bit(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE)
    whole = rlsdk.make("cloning", env=None, dataset=data, seed=4, normalize=True).learn(70)
    whole.save(tmp_path / "agent")
    whole.learn(50, reset_num_timesteps=False)
    again = rlsdk.load(tmp_path / "agent", dataset=data).learn(50, reset_num_timesteps=False)
    states = [flatten(agent.get_parameters()["policy"]) for agent in (whole, again)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_prediction_needs_no_data_set_and_training_asks_for_the_same(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE)
    agent = rlsdk.make("cloning", env=None, dataset=data, seed=0).learn(20)
    agent.save(tmp_path / "agent")
    assert str(tmp_path).encode() not in (tmp_path / "agent.rlsdk").read_bytes()
    moved = data.rename(tmp_path / "elsewhere.safetensors")
    alone = rlsdk.load(tmp_path / "agent")
    assert alone.predict([0.5, 0.5], deterministic=True)[0] == agent.predict([0.5, 0.5], deterministic=True)[0]
    with pytest.raises(UsageError, match=r"needs the data set 'demo' .* pass it again"):
        alone.learn(10)
    rlsdk.load(tmp_path / "agent", dataset=moved).learn(10)
    other = recorded(tmp_path / "other", CHOICE, episodes=3)
    with pytest.raises((ArtifactError, rlsdk.errors.SettingsError), match="another data set than expected"):
        rlsdk.load(tmp_path / "agent", dataset=other)


def test_what_does_not_fit_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="that learn from a data set: give theirs"):
        rlsdk.make("cloning", env=None)
    with pytest.raises(rlsdk.errors.SettingsError, match="dataset: there is no data set"):
        rlsdk.make("cloning", env=None, dataset=tmp_path / "missing")
    data = recorded(tmp_path / "demo", CHOICE)
    with pytest.raises(UnsupportedSpaceError, match="'demo' was recorded with observations"):
        rlsdk.make("cloning", env="CartPole-v1", dataset=data)
