"""Inputs and outputs of exported policies: masks, dtypes, names of inputs, and names of the written files."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk_interchange.exporting import Exported, export
from tests.test_odd_spaces import Drawn

SMALL: dict[str, dict[str, Any]] = {
    "a2c": {"n_steps": 8},
    "dqn": {"learning_starts": 8, "buffer_size": 50, "batch_size": 4},
    "maskable-ppo": {"n_steps": 16, "batch_size": 16},
}
MASKED = "rlsdk/InvalidActionEnvDiscrete-v0"
SPACE = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def made(name: str, env: Any, **settings: Any) -> Any:
    return rlsdk.make(name, env=env, seed=0, **SMALL[name], **settings)


def call(exported: Exported, *inputs: Any) -> list[np.ndarray[Any, Any]]:
    program = torch.export.load(exported.path).module()
    return [value.numpy() for value in program(*map(torch.from_numpy, inputs))]


@pytest.mark.parametrize("name", ["a2c", "dqn", "maskable-ppo"])
def test_agents_that_were_trained_with_masks_take_them(name: str, tmp_path: Path) -> None:
    """The exported policy takes masks, also after loading without an environment, and also if the algorithm does not
    need masks."""
    agent = made(name, MASKED).learn(16)
    loaded = rlsdk.load(agent.save(tmp_path / "agent", exclude=["training"]))
    again = rlsdk.load(loaded.save(tmp_path / "again"))
    count = agent.action_space.n
    masks = np.eye(count, dtype=bool)
    observations = np.zeros(count, np.int64)
    for each in (agent, copy.deepcopy(agent), loaded, again):
        exported = export(each, tmp_path / "policy", "torch-export")
        assert exported.inputs == ("observation", "action_mask")
        np.testing.assert_array_equal(call(exported, observations, masks)[0], np.arange(count))
    assert export(agent, tmp_path / "policy", "torch-export", masks=False).inputs == ("observation",)


def test_the_choice_about_masks(tmp_path: Path) -> None:
    free = made("a2c", "CartPole-v1")
    assert export(free, tmp_path / "policy", "torch-export").inputs == ("observation",)
    exported = export(free, tmp_path / "policy", "torch-export", masks=True)
    observations, masks = np.zeros((2, 4), np.float32), np.array([[True, False], [False, True]])
    assert call(exported, observations, masks)[0].tolist() == [0, 1]
    box = rlsdk.make("a2c", env="Pendulum-v1", n_steps=8)
    with pytest.raises(SettingsError, match="a2c does not use action masks here; leave masks out"):
        export(box, tmp_path / "policy", "torch-export", masks=True)


def test_an_environment_with_masks_is_remembered(tmp_path: Path) -> None:
    agent = made("a2c", MASKED).learn(16)
    bare = Drawn(gym.spaces.Discrete(agent.action_space.n), gym.spaces.Discrete(agent.action_space.n))
    agent.set_env(bare)
    assert "action_mask" in export(agent, tmp_path / "policy", "torch-export").inputs


def test_a_damaged_entry_about_masks(tmp_path: Path) -> None:
    from rlsdk.agent.agent_file import inspect_file, require_manifest

    written = inspect_file(made("a2c", "CartPole-v1").save(tmp_path / "agent"))
    require_manifest({**written, "action_masks": True})
    with pytest.raises(ArtifactError, match="its manifest has action_masks = 1"):
        require_manifest({**written, "action_masks": 1})
    with pytest.raises(ArtifactError, match="its manifest has seed = True"):
        require_manifest({**written, "seed": True})


@pytest.mark.parametrize(
    ("kind", "given"), [(np.bool_, np.bool_), (np.uint8, np.uint8), (np.uint16, np.int32), (np.uint64, np.int64)]
)
def test_dtypes_of_observations(kind: Any, given: Any, tmp_path: Path) -> None:
    agent = made("a2c", Drawn(gym.spaces.Box(0, 1, (3,), kind), gym.spaces.Discrete(4)))
    exported = export(agent, tmp_path / "policy", "torch-export")
    observations = np.array([[0, 1, 1], [1, 0, 0]], kind)
    wanted = agent.predict(observations, deterministic=True)[0]
    np.testing.assert_array_equal(call(exported, observations.astype(given))[0], wanted)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_actions_have_the_dtype_of_their_box(kind: Any, tmp_path: Path) -> None:
    agent = made("a2c", Drawn(SPACE, gym.spaces.Box(-0.3, 0.1, (2,), kind)))
    with torch.no_grad():
        agent.policy.head.linear.bias.copy_(torch.tensor([9.0, -9.0]))
    observations = np.zeros((2, 2), np.float32)
    (found,) = call(export(agent, tmp_path / "policy", "torch-export"), observations)
    wanted = agent.predict(observations, deterministic=True)[0]
    assert found.dtype == wanted.dtype == kind
    np.testing.assert_array_equal(found, wanted)


def test_two_inputs_of_one_name_are_refused(tmp_path: Path) -> None:
    space = gym.spaces.Dict({"a.b": SPACE, "a": gym.spaces.Dict({"b": SPACE})})
    agent = made("a2c", Drawn(space, SPACE), policy="MultiInputPolicy")
    with pytest.raises(SettingsError, match=r"would have the name 'observation.a.b', as keys are joined by dots"):
        export(agent, tmp_path / "policy", "torch-export")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "folder/.."])
def test_a_folder_is_no_name_of_an_export(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="names no file; give a name such as 'policy'"):
        export(made("a2c", "CartPole-v1"), name, "torch-export")
    assert list(tmp_path.iterdir()) == []


def test_names_with_dots(cli: Any) -> None:
    """In names with dots, neither a number nor the part before `.rlsdk` counts as a suffix."""
    agent = made("a2c", "CartPole-v1")
    assert export(agent, "run-0.5", "torch-export").path == Path("run-0.5.pt2")
    for name, line in (("agent.v1", "agent.v1.rlsdk"), ("run-0.5", "run-0.5"), ("zipped.zip", "zipped")):
        agent.save(name)
        code, out, err = cli("export", line, "--format", "torch-export")
        stem = name.removesuffix(".zip")
        assert (code, err) == (0, "")
        assert out.splitlines()[0].startswith(f"{stem}.pt2: inputs observation;")
        assert Path(f"{stem}.md").is_file()
    code, out, _ = cli("export", "run-0.5", "--masks", "--out", "policy-1.0", "--format", "torch-export")
    assert (code, out.splitlines()[0]) == (0, "policy-1.0.pt2: inputs observation, action_mask; outputs action")
