"""Every extension point of the SDK, with a plugin or networks that use it: saving, exact resuming, export.

The contract kit runs on the example plugins in `tests/examples/test_examples.py` (`test_the_algorithms_keep_the_contracts`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk import Agent, tree
from rlsdk.agent.agent_file import KIND
from rlsdk.callbacks import Callback, CheckpointCallback
from rlsdk.spaces import choices_of
from rlsdk.storage.archive import read
from rlsdk_datasets import RecordedTransitions
from rlsdk_envs.toy import AnySpaceEnv, ExtraInfo
from rlsdk_interchange.exporting import Exported, export
from rlsdk_testing import Clause, clauses, settings_clauses
from rlsdk_testing.alternatives import Setting
from rlsdk_testing.datasets import random_dataset
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.settings_clauses import training_settings
from rlsdk_testing.subject import SMALL, Subject
from rlsdk_testing.trials import Trials
from tests.example_plugins import installed_examples
from tests.networks.test_own_networks import BOX, VECTOR, objects_of
from tests.networks.test_own_networks import CASES as OWN

REPLAY = {"buffer_size": 150, "learning_starts": 20, "batch_size": 8}
ROLLOUT = {"n_steps": 32, "batch_size": 16, "n_epochs": 2}


@dataclass(frozen=True)
class Opening:
    """An agent that uses an extension point; how long it trains (`total`) and how often it saves (`every`), in steps."""

    algorithm: str
    env: Callable[[], object]
    settings: Mapping[str, object]
    total: int = 200
    every: int = 90
    custom_objects: Mapping[str, object] = field(default_factory=dict)
    needs_data: bool = False

    def make(self, folder: Path) -> Agent:
        """Make the agent. It gets a data set instead of an environment if `needs_data`."""
        data = {"dataset": self.data(folder)} if self.needs_data else {}
        return rlsdk.make(self.algorithm, env=None if data else self.env(), seed=0, **data, **self.settings)

    def load(self, path: Path, folder: Path) -> Agent:
        """Load the agent in a file, with its environment or data set, so that it can continue."""
        if self.needs_data:
            return rlsdk.load(path, dataset=self.data(folder))
        return rlsdk.load(path, env=self.env(), force_reset=False, custom_objects=dict(self.custom_objects))

    def data(self, folder: Path) -> Path:
        """The path of the data set, which the first call records."""
        path = folder / "data.safetensors"
        return path if path.exists() else random_dataset(self.env(), path)


def _costly() -> object:
    return ExtraInfo(gymnasium.make("CartPole-v1"), ("cost",))


def _corridor() -> object:
    from acme_rnd.corridor import Corridor

    return Corridor(12)


def _own(case: str) -> Opening:
    algorithm, settings, networks = OWN[case]
    action = spaces.Box(-1.0, 1.0, (2,), np.float32) if algorithm in BOX else spaces.Discrete(3)
    policy = "MlpLstmPolicy" if algorithm == "recurrent-ppo" else "MlpPolicy"
    chosen = {"policy": policy, "policy_kwargs": networks, **settings}
    return Opening(algorithm, lambda: AnySpaceEnv(VECTOR, action, 7), chosen, 60, 26, objects_of(case))


def cart_pole() -> object:
    return gymnasium.make("CartPole-v1")


OPENINGS: dict[str, Opening] = {
    "own loop: v-trace": Opening("v-trace", cart_pole, {"n_steps": 8, "buffer_size": 100, "batch_size": 4}),
    "model-based: dyna": Opening(
        "dyna", cart_pole, {**REPLAY, "buffer_size": 60, "planning_steps": 2, "normalize": True}
    ),
    "two values: rnd": Opening("rnd", _corridor, {**ROLLOUT, "hidden": 16}),
    "info: ppo-lagrangian": Opening("ppo-lagrangian", _costly, {**ROLLOUT, "cost_limit": 2.0}),
    "data set: cloning": Opening("cloning", cart_pole, {"batch_size": 16, "normalize": True}, 250, 90, needs_data=True),
    "on-policy: reinforce": Opening("reinforce", cart_pole, {"n_steps": 32}),
    "population: cross-entropy": Opening("cross-entropy", cart_pole, {"candidates": 4, "elites": 2}, 600, 100),
    **{f"own networks: {case}": _own(case) for case in OWN},
}
PARAMETERS = [pytest.param(name, marks=pytest.mark.slow) if ", " in name else name for name in OPENINGS]
"""Agents with one custom network and one standard network are tested in the slow suite only."""


@pytest.fixture(scope="module", autouse=True)
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the example plugins."""
    with installed_examples(tmp_path_factory.mktemp("examples")):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for data sets, shared by the tests of this file."""
    return tmp_path_factory.mktemp("openings")


def observations(agent: Agent, count: int) -> list[object]:
    """Return `count` random observations of the agent's space."""
    space = rlsdk.environments.to_gymnasium(agent.context.observation_space)
    space.seed(5)
    scale = 1.0 if space.is_bounded() else 0.05
    return [np.clip(space.sample(), -3.0, 3.0) * scale for _ in range(count)]


def actions_of(agent: Agent, seen: list[object], *, deterministic: bool) -> list[object]:
    masks = "none" if agent.spec.action_masks == "required" else None
    return [agent.predict(each, deterministic=deterministic, action_masks=masks)[0] for each in seen]


class StopAtCheckpoint(Callback):
    def on_checkpoint(self, run: object, path: Path) -> bool | None:
        return False


def whole_file(agent: Agent, path: Path) -> dict[str, object]:
    """Save the agent with its replay buffer and return the contents of the file as a flat dict."""
    agent.save(path, include=[] if agent.parts.buffer is None else ["replay_buffer"])
    _, sections = read(path.with_suffix(".rlsdk"), kind=KIND)
    return tree.flatten(sections)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_resumed_training_equals_one_that_never_stopped(name: str, folder: Path, tmp_path: Path) -> None:
    opening = OPENINGS[name]
    whole = opening.make(folder)
    start = tree.flatten(whole.get_parameters()["policy"])
    start = {key: value.clone() for key, value in start.items() if isinstance(value, torch.Tensor)}
    whole.learn(opening.total, CheckpointCallback(opening.every, tmp_path / "whole"))
    learned = tree.flatten(whole.get_parameters()["policy"])
    assert any(not torch.equal(value, learned[key]) for key, value in start.items()), "nothing was learned"
    stopping = [CheckpointCallback(opening.every, tmp_path / "first"), StopAtCheckpoint()]
    opening.make(folder).learn(opening.total, stopping)
    (stopped,) = (tmp_path / "first").glob("*.rlsdk")
    resumed = opening.load(stopped, folder)
    at = resumed.num_timesteps
    assert 0 < at < opening.total
    resumed.learn(opening.total - at, CheckpointCallback(opening.every, tmp_path / "rest"), reset_num_timesteps=False)
    found, wanted = whole_file(resumed, tmp_path / "found"), whole_file(whole, tmp_path / "wanted")
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        same = torch.equal(found[key], value) if isinstance(value, torch.Tensor) else found[key] == value
        assert same, f"{key}: {found[key]}, not {value}"
    seen = observations(whole, 5)
    np.testing.assert_array_equal(*(actions_of(each, seen, deterministic=False) for each in (whole, resumed)))


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_saved_agent_predicts_the_same_alone_and_exported(name: str, folder: Path, tmp_path: Path) -> None:
    opening = OPENINGS[name]
    agent = opening.make(folder).learn(opening.every // 2)
    agent.save(tmp_path / "agent")
    alone = rlsdk.load(tmp_path / "agent", custom_objects=dict(opening.custom_objects))
    seen = observations(agent, 8)
    wanted = actions_of(agent, seen, deterministic=True)
    np.testing.assert_array_equal(wanted, actions_of(alone, seen, deterministic=True))
    exported = export(agent, tmp_path / "policy", "torch-export")
    program = torch.export.load(exported.path).module()
    for each, action in zip(seen, wanted, strict=True):
        found = program(*_inputs(exported, each, sum(choices_of(agent.context.action_space))))[0]
        np.testing.assert_allclose(found.numpy()[0], action, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPENINGS)
def test_an_agent_in_onnx_does_the_same(name: str, folder: Path, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    agent = OPENINGS[name].make(folder).learn(OPENINGS[name].every // 2)
    exported = export(agent, tmp_path / "policy", "onnx")
    runtime = ort.InferenceSession(str(exported.path))
    seen = observations(agent, 8)
    for each, action in zip(seen, actions_of(agent, seen, deterministic=True), strict=True):
        inputs = _inputs(exported, each, sum(choices_of(agent.context.action_space)))
        given = {name: value.numpy() for name, value in zip(exported.inputs, inputs, strict=True)}
        np.testing.assert_allclose(runtime.run(None, given)[0][0], action, atol=1e-5)


def _inputs(exported: Exported, seen: object, choices: int) -> list[torch.Tensor]:
    """The inputs of an exported policy for one observation: start of an episode, every action allowed, zero states."""
    given = {"action_mask": torch.ones(1, choices, dtype=torch.bool), "episode_start": torch.tensor([True])}
    states = [torch.zeros(1, *shape, dtype=getattr(torch, dtype)) for dtype, shape in exported.states]
    named = [given[name] for name in exported.inputs if name in given]
    return [torch.as_tensor(np.asarray(seen)).unsqueeze(0), *named, *states]


def test_rewards_of_a_data_set_are_scaled(folder: Path) -> None:
    """Rewards are divided by the standard deviation of the discounted returns, as with environments."""
    agent = OPENINGS["data set: cloning"].make(folder).learn(1)
    memory = agent.parts.buffer
    assert isinstance(memory, RecordedTransitions)
    returns = []
    for episode in memory.episodes:
        so_far = 0.0
        for reward in episode.rewards.tolist():
            so_far = 0.99 * so_far + reward
            returns.append(so_far)
    raw, seen = (sample(64, torch.Generator().manual_seed(0)).reward for sample in (memory.sample, agent.parts.sample))
    np.testing.assert_allclose(seen, raw / np.sqrt(np.var(returns) + 1e-8), rtol=1e-3)
    assert not torch.allclose(raw, seen)


def test_signs_of_rewards_of_a_data_set(folder: Path) -> None:
    data = random_dataset(AnySpaceEnv(VECTOR, spaces.Discrete(2), 7), folder / "signs")
    agent = rlsdk.make("cloning", env=None, dataset=data, normalize={"norm_reward": False, "sign_reward": True}, seed=0)
    reward = agent.learn(1).parts.sample(64, torch.Generator().manual_seed(0)).reward
    assert set(reward.tolist()) <= {-1.0, 0.0, 1.0}
    assert len(set(reward.tolist())) > 1


class OwnNetworks(Subject):
    """The subject of the kit's checks: agents of an algorithm with custom networks."""

    def __init__(self, case: str) -> None:
        self.networks = OWN[case][2]
        super().__init__(OWN[case][0])

    def settings(self, base: Mapping[str, object] = SMALL, /, **changes: object) -> dict[str, object]:
        changes.pop("use_sde", None)  # custom networks refuse it
        given = changes.get("policy_kwargs")
        networks = {**(given if isinstance(given, dict) else {}), **self.networks}
        return {**super().settings(base, **changes), "policy_kwargs": networks}


KIT = [case for case in OWN if ", " not in case]
OF_AGENTS = [clause for clause in clauses() if not str(clause).startswith(("plugin.", "serializer.", "distribution."))]
"""The clauses that custom networks can affect; the others check packages, serializers and distributions."""


@pytest.mark.slow
@pytest.mark.parametrize("clause", OF_AGENTS, ids=str)
@pytest.mark.parametrize("case", KIT)
def test_own_networks_keep_the_contracts(case: str, clause: Clause, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files do not store the user's classes, so every `load` in the kit gets them as `custom_objects`."""
    monkeypatch.setattr(Agent, "load", partial(_load_with, Agent.load, objects_of(case)))
    monkeypatch.setattr(settings_clauses, "training_settings", _settings_of_no_network)
    with contextlib.suppress(NotApplicable):
        clause.check(OwnNetworks(case))


def _settings_of_no_network(trials: Trials) -> list[Setting]:
    """The settings to vary, without `policy_kwargs`, which custom networks replace, and gSDE, which they refuse."""
    others = ("policy_kwargs", "use_sde", "sde_")
    return [setting for setting in training_settings(trials) if not setting.name.startswith(others)]


def _load_with(load: Callable[..., Agent], objects: Mapping[str, object], path: Path, **options: Any) -> Agent:
    given = {**objects, **(options.pop("custom_objects", None) or {})}
    return load(path, custom_objects=given, **options)
