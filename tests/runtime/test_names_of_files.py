"""Names that no file can have give one line, wherever a user can give a name."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlsdk
from rlsdk.callbacks import CheckpointCallback, EvalCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, RlsdkError
from rlsdk_interchange import record_episodes

SMALL: dict[str, Any] = {"buffer_size": 300, "learning_starts": 5, "seed": 0}
USES: dict[str, Callable[[Any, str], object]] = {
    "save": lambda agent, name: agent.save(name),
    "load": lambda agent, name: rlsdk.load(name),
    "save_replay_buffer": lambda agent, name: agent.save_replay_buffer(name),
    "load_replay_buffer": lambda agent, name: agent.load_replay_buffer(name),
    "monitor_dir": lambda agent, name: make_vec_env("Pendulum-v1", 1, monitor_dir=name),
    "record_episodes": lambda agent, name: record_episodes(agent, "Pendulum-v1", 1, name),
    "dataset": lambda agent, name: rlsdk.make("bc", env="Pendulum-v1", dataset=name),
    "directory": lambda agent, name: rlsdk.make(
        "sac", env="Pendulum-v1", replay_buffer_kwargs={"directory": name}, **SMALL
    ),
    "save_path": lambda agent, name: agent.learn(3, callback=CheckpointCallback(2, name)),
    "best_model_save_path": lambda agent, name: agent.learn(
        3, callback=EvalCallback("Pendulum-v1", eval_freq=2, n_eval_episodes=1, best_model_save_path=name)
    ),
    "tensorboard_log": lambda agent, name: rlsdk.make("sac", env="Pendulum-v1", tensorboard_log=name, **SMALL).learn(3),
}


@pytest.fixture(scope="module")
def agent() -> Any:
    return rlsdk.make("sac", env="Pendulum-v1", **SMALL).learn(8)


@pytest.mark.parametrize(
    ("name", "words"),
    [("no\0name", r"contains a null character|names no folder"), ("n" * 300, r"shorten it to 255|File name too long")],
)
@pytest.mark.parametrize("use", USES)
def test_a_name_that_no_file_can_have_is_one_line(use: str, name: str, words: str, agent: Any, tmp_path: Path) -> None:
    with pytest.raises(RlsdkError, match=words) as caught:
        USES[use](agent, str(tmp_path / name))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("use", ["save", "load"])
def test_the_suffix_is_a_part_of_the_name(use: str, agent: Any, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="256 bytes; shorten it to 255"):
        USES[use](agent, str(tmp_path / ("n" * 250)))


def test_a_stream_that_cannot_seek_back_gives_the_reason(agent: Any, tmp_path: Path) -> None:
    with (
        gzip.open(tmp_path / "agent.gz", "wb") as stream,
        pytest.raises(ArtifactError, match=r"a file .* that can seek"),
    ):
        agent.save(stream)
