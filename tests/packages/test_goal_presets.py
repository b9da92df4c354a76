"""Presets for goals: with hindsight replay, agents learn to flip fifteen bits until they equal the goal."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.registry import Preset, preset, presets
from tests.combination_table import OURS

GOALS = [
    pytest.param(name, known, id=f"{name} {known.env}")
    for name in OURS
    for known in presets(name)
    if known.settings.get("replay_buffer_class") == "hindsight"
]


def made(name: str, known: Preset, **settings: Any) -> Any:
    """An agent with the settings of a preset."""
    env = make_vec_env(known.env, known.n_envs or 1, vectorization="sync")
    return rlsdk.make(name, env=env, **{**known.settings, "seed": 0, **settings})


def reached(model: Any, known: Preset, goals: int = 100) -> float:
    """The share of goals that the agent reaches before the time limit."""
    env = make_vec_env(known.env, 1, vectorization="sync")
    longest: Any = gymnasium.make(known.env).unwrapped
    found = run_episodes(model, env, goals, seed=1)
    return sum(result > -longest.max_steps for result in found.returns) / goals


def test_dqn_and_sac_ship_one() -> None:
    assert preset("dqn", "rlsdk/BitFlipping15-v0") is not None
    assert preset("sac", "rlsdk/BitFlipping15Continuous-v0") is not None


@pytest.mark.parametrize(("name", "known"), GOALS)
def test_a_preset_trains(name: str, known: Preset) -> None:
    model = made(name, known, learning_starts=30).learn(60)
    assert model.cursor.updates > 0
    assert model.replay_buffer.share == 0.8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("name", "known"), GOALS)
def test_almost_every_goal_is_reached(name: str, known: Preset, seed: int) -> None:
    assert reached(made(name, known, seed=seed).learn(known.steps), known) >= 0.95


@pytest.mark.slow
def test_without_hindsight_hardly_any_is() -> None:
    known = preset("dqn", "rlsdk/BitFlipping15-v0")
    assert known is not None
    model = made("dqn", known, replay_buffer_class="uniform").learn(known.steps)
    assert reached(model, known) <= 0.1
