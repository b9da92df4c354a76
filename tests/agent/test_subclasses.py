"""Subclasses of algorithm classes that users write: overridden methods, attributes, pickling."""

from __future__ import annotations

import pickle
import warnings
from copy import copy
from pathlib import Path
from typing import Any

import pytest

import rlsdk
from rlsdk.agent import agent_class
from rlsdk.errors import UsageError
from rlsdk.registry import load
from rlsdk.registry.discovery import algorithms
from rlsdk_ppo import PPO


@pytest.mark.parametrize(
    ("method", "caller"), [("train", "trainings"), ("_store_transition", "trainings"), ("predict", "evaluations")]
)
def test_methods_that_have_no_effect_are_named(method: str, caller: str) -> None:
    with pytest.warns(RuntimeWarning, match=f"Mine overrides {method}, which {caller} do not call"):
        type("Mine", (PPO,), {method: lambda self, *args: None})


def test_other_methods_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Mine(PPO):
            def describe(self) -> str:
                return f"{self.num_timesteps} steps"

        agent = Mine("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32)
        for plugin in algorithms():
            agent_class(load(plugin.id))
    assert agent.learn(32).describe() == "32 steps"


def test_own_attributes_are_not_stored(tmp_path: Path) -> None:
    class Mine(PPO):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            vars(self)["note"] = "mine"

    Mine("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32).save(tmp_path / "agent")
    loaded = Mine.load(tmp_path / "agent")
    assert "note" not in vars(loaded)


@pytest.mark.parametrize("function", [pickle.dumps, copy])
def test_agents_are_not_pickled(function: Any) -> None:
    with pytest.raises(UsageError, match=r"copy\.deepcopy copies it"):
        function(rlsdk.make("ppo", env="CartPole-v1"))
