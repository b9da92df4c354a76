"""Errors when an intact agent file does not fit the arguments of `load`: the message names these arguments."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import rlsdk
from rlsdk.callbacks import CheckpointCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, SettingsError, UnsupportedSpaceError
from rlsdk_bc import BC
from rlsdk_dqn import DQN
from rlsdk_interchange import record_episodes
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_sb3 import EvalCallback
from rlsdk_trpo import TRPO

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [4]}, "seed": 0}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "dqn.rlsdk"
    agent = DQN("MlpPolicy", "CartPole-v1", buffer_size=500, learning_starts=20, batch_size=8, **SMALL)
    agent.learn(60).save(path, include=["replay_buffer"])
    return path


@pytest.mark.parametrize(
    ("num_envs", "changes"),
    [
        (2, {}),
        (1, {"buffer_size": 30}),
        (1, {"optimize_memory_usage": True}),
        (1, {"replay_buffer_class": "prioritized"}),
    ],
)
def test_a_replay_buffer_that_does_not_fit_what_was_given(stored: Path, num_envs: int, changes: dict[str, Any]) -> None:
    with pytest.raises(
        ArtifactError, match="does not fit the settings or the number of environments given now"
    ) as caught:
        DQN.load(stored, env=make_vec_env("CartPole-v1", num_envs), **changes)
    assert "damaged" not in str(caught.value)
    assert "KeyError" not in str(caught.value)


@pytest.mark.parametrize("normalize", [True, False])
def test_normalization_that_the_file_has_no_statistics_of(normalize: bool) -> None:
    file = io.BytesIO()
    TRPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=8, normalize=None if normalize else True, **SMALL).save(
        file
    )
    file.seek(0)
    with pytest.raises(ArtifactError, match="leave normalize unchanged"):
        TRPO.load(file, normalize=True if normalize else None)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"policy_kwargs": {"net_arch": [16]}}, "policy_kwargs"),
        ({"policy_kwargs": {"net_arch": [4, 4]}}, "policy_kwargs"),
        ({"custom_objects": {"frame_stack": 2}}, "frame_stack"),
        ({"gamma": 0.5, "policy": "MlpGruPolicy"}, "gamma, policy"),
    ],
)
def test_networks_that_do_not_fit_what_was_given(changes: dict[str, Any], named: str) -> None:
    file = io.BytesIO()
    RecurrentPPO("MlpLstmPolicy", "CartPole-v1", policy_kwargs={"net_arch": [4], "lstm_hidden_size": 4}).save(file)
    with pytest.raises(
        ArtifactError, match=f"does not fit the {named} that load was given; give what the agent"
    ) as found:
        RecurrentPPO.load(io.BytesIO(file.getvalue()), **changes)
    message = str(found.value)
    assert "\n" not in message, "errors are one line"
    assert message.count("size mismatch") + message.count("Missing key") <= 1
    assert len(message) < 500


def test_what_save_includes_and_excludes(tmp_path: Path) -> None:
    agent = TRPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=8, **SMALL).learn(16)
    agent.save(tmp_path / "one", include=["num_timesteps"], exclude="env")
    assert TRPO.load(tmp_path / "one").num_timesteps == 16
    agent.save(tmp_path / "two", exclude="training")
    assert TRPO.load(tmp_path / "two").num_timesteps == 0
    with pytest.raises(SettingsError, match="never hold 'logger'; leave it out of include"):
        agent.save(tmp_path / "three", include="logger")
    with pytest.raises(SettingsError, match=r"load\(path, tensorboard_log="):
        agent.save(tmp_path / "three", include=["tensorboard_log"])


def test_text_files_are_refused(tmp_path: Path) -> None:
    agent = TRPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=8, **SMALL)
    with (tmp_path / "text").open("w") as text, pytest.raises(ArtifactError, match="opened with 'wb'"):
        agent.save(text)  # type: ignore[arg-type]
    with (tmp_path / "text").open() as text, pytest.raises(ArtifactError, match="opened with 'rb'"):
        TRPO.load(text)  # type: ignore[arg-type]


def test_cloning_a_data_set_does_not_depend_on_the_number_of_environments(tmp_path: Path) -> None:
    teacher = TRPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=8, **SMALL)
    record_episodes(teacher, "CartPole-v1", 4, tmp_path / "episodes")
    agent = BC("MlpPolicy", "CartPole-v1", dataset=next(tmp_path.glob("episodes*")), **SMALL).learn(10)
    agent.set_env(make_vec_env("CartPole-v1", 2))
    assert agent.learn(10, reset_num_timesteps=False).num_timesteps == 20


def test_custom_objects_of_the_documented_zoo(tmp_path: Path) -> None:
    agent = TRPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=8, **SMALL)
    agent.save(tmp_path / "one")
    with pytest.raises(SettingsError, match="unknown setting 'lr_schedule'"):
        TRPO.load(tmp_path / "one", custom_objects={"learning_rate": 0.1, "lr_schedule": lambda _: 0.1})
    with pytest.raises(SettingsError, match=r"learning_rate = 0\.0 must be positive"):
        TRPO.load(tmp_path / "one", custom_objects={"learning_rate": 0.0})
    assert TRPO.load(tmp_path / "one", custom_objects={"learning_rate": 0.1}).learning_rate(1.0) == 0.1


def test_a_device_of_the_caller_is_no_damage_of_the_file(tmp_path: Path) -> None:
    rlsdk.make("trpo", env="CartPole-v1", **SMALL).save(tmp_path / "agent")
    with pytest.raises(SettingsError, match=r"^\S+agent\.rlsdk: device 'gpu' cannot be used here"):
        rlsdk.load(tmp_path / "agent", device="gpu")


def test_custom_objects_are_a_table(tmp_path: Path) -> None:
    rlsdk.make("trpo", env="CartPole-v1", **SMALL).save(tmp_path / "agent")
    wrong: Any = [1]
    with pytest.raises(SettingsError, match=r"custom_objects = \[1\] is not a table; write load"):
        rlsdk.load(tmp_path / "agent", custom_objects=wrong)


def test_an_empty_name_is_no_file() -> None:
    agent = rlsdk.make("trpo", env="CartPole-v1", **SMALL)
    for use in (agent.save, rlsdk.load, agent.set_parameters):
        for name in ("", ".", ".."):
            with pytest.raises(ArtifactError, match=f"'{name}' names no file; give a name such as 'agent'"):
                use(name)


def test_parts_of_a_replay_buffer_that_are_gone(tmp_path: Path) -> None:
    agent = rlsdk.make("sac", env="Pendulum-v1", seed=0, learning_starts=100, buffer_size=100)
    agent.learn(20, CheckpointCallback(20, tmp_path))
    next((tmp_path / "replay").glob("*.rlsdk")).unlink()
    with pytest.raises(ArtifactError, match=r"1 of 1 parts of the replay buffer are missing in .*replay, such as 0000"):
        rlsdk.load(tmp_path / "step_000000020", env="Pendulum-v1")
    assert rlsdk.load(tmp_path / "step_000000020").num_timesteps == 20


def test_other_bounds_are_named(tmp_path: Path) -> None:
    class Wide(gymnasium.Wrapper[Any, Any, Any, Any]):
        action_space = gymnasium.spaces.Box(-5.0, 5.0, (1,))

    rlsdk.make("trpo", env="Pendulum-v1", **SMALL).save(tmp_path / "agent")
    words = r"action_space Box\(.*\) from -5\.0 to 5\.0, the agent was made for Box\(.*\) from -2\.0 to 2\.0"
    with pytest.raises(UnsupportedSpaceError, match=words):
        rlsdk.load(tmp_path / "agent", env=Wide(gymnasium.make("Pendulum-v1")))


def test_callbacks_that_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    agent = rlsdk.make("trpo", env="CartPole-v1", n_steps=32, batch_size=32, **SMALL)
    evaluations = EvalCallback(
        "CartPole-v1", eval_freq=32, n_eval_episodes=1, log_path=str(tmp_path / "file"), verbose=0
    )
    with pytest.raises(ArtifactError, match=r"cannot write \S+evaluations\.npz: File exists; choose a writable place"):
        agent.learn(32, evaluations)
    with pytest.raises(SettingsError, match="save_path = None must be the folder of the checkpoints"):
        CheckpointCallback(10, None)  # type: ignore[arg-type]
