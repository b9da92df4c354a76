"""Loops that wait for the end of an episode: they warn, and end with an error."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from typer.testing import CliRunner

import rlsdk
from rlsdk.callbacks import EvalCallback
from rlsdk.cli.main import app
from rlsdk.environments import connect, make_vec_env
from rlsdk.errors import EnvironmentFault, ResourceError
from rlsdk.evaluation import evaluate_policy, run_episodes
from rlsdk_envs.toy import ChainEnv
from rlsdk_interchange.recording import record_episodes
from rlsdk_lab.video import record_video

ENDED = "no episode ended in 200 steps, and whole episodes are played; give it a time limit"
SMALL: dict[str, Any] = {"n_steps": 10, "batch_size": 10, "seed": 0}


class Endless(ChainEnv):
    """Its episodes never end. It draws small pictures."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  # as in gymnasium

    def __init__(self, length: int = 10**9, render_mode: str | None = None) -> None:
        super().__init__(length, terminate_every=1)
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.zeros((2, 2, 3), np.uint8)


gymnasium.register("tests/Endless-v0", Endless, disable_env_checker=True, order_enforce=False)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller limits."""
    for module in ("environments.vector.faults", "training.off_policy"):
        monkeypatch.setattr(f"rlsdk.{module}.LONG", 50)
    monkeypatch.setattr("rlsdk.environments.vector.faults.MOST", 200)


def ppo(env: Any = None) -> Any:
    return rlsdk.make("ppo", env=ChainEnv(3) if env is None else env, **SMALL)


def evaluation_with_callback() -> None:
    evaluate_policy(ppo(), Endless(), 1, callback=lambda *_: None)


def training_with_evaluation() -> None:
    ppo().learn(20, callback=EvalCallback(Endless(), n_eval_episodes=1, eval_freq=10))


def episodes_of_an_agent(folder: str = "data") -> None:
    record_episodes(ppo(), Endless(), 1, folder)


def rounds_of_episodes() -> None:
    settings: dict[str, Any] = {"buffer_size": 100, "train_freq": (1, "episode"), "seed": 0}
    env = ChainEnv(10**9, action_space=gymnasium.spaces.Discrete(2))
    rlsdk.make("dqn", env=env, **settings).learn(10)


WAITING = {
    "evaluation": lambda: run_episodes(ppo(), Endless(), 1),
    "processes": lambda: run_episodes(ppo(), make_vec_env(Endless, 2, vectorization="async"), 1),
    "vector of gymnasium": lambda: run_episodes(ppo(), connect(gymnasium.vector.SyncVectorEnv([Endless])), 1),
    "one of two": lambda: run_episodes(ppo(), make_vec_env([Endless, lambda: ChainEnv(3)]), 20),
    "evaluation with a callback": evaluation_with_callback,
    "evaluation in training": training_with_evaluation,
    "recording": episodes_of_an_agent,
    "recording of random actions": lambda: record_episodes("random", Endless(), 1, "data"),
    "video": lambda: record_video(ppo(), "tests/Endless-v0", "video.gif"),
    "candidates": lambda: rlsdk.make("ars", env=Endless(), policy="LinearPolicy", n_delta=1, seed=0).learn(10),
    "rounds of episodes": rounds_of_episodes,
}


@pytest.mark.parametrize("what", WAITING)
def test_nobody_waits_for_ever(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        pytest.warns(UserWarning, match=r"no episode ended in \d\d steps.*without one this ends after 200 steps"),
        pytest.raises(EnvironmentFault, match=ENDED),
    ):
        WAITING[what]()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing is written"


def test_the_command_says_so_in_one_line(tmp_path: Path) -> None:
    file = ppo().save(tmp_path / "agent")
    given = ["eval", str(file), "--env", "tests/Endless-v0", "--episodes", "1"]
    with pytest.warns(UserWarning, match="no episode ended"):
        result = CliRunner().invoke(app, given)
    assert isinstance(result.exception, EnvironmentFault) or "no episode ended in 200 steps" in result.output
    ended = CliRunner().invoke(app, [*given, "--env-kwargs", "max_episode_steps=30"])
    assert ended.exit_code == 0, ended.output


def test_results_of_episodes_that_end_do_not_depend_on_limits() -> None:
    """The larger of the two limits holds: that of the environment can be above ours, and below the warning there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "learn: ")
        for env in (
            TimeLimit(Endless(), 500),
            make_vec_env(lambda: TimeLimit(Endless(), 500), 2, vectorization="async"),
        ):
            assert run_episodes(ppo(), env, 2).lengths == [500, 500]
        limited = gymnasium.make("tests/Endless-v0", max_episode_steps=300)
        assert run_episodes(ppo(), limited, 1).lengths == [300]
        assert run_episodes(ppo(), Endless(49), 30).lengths == [49] * 30
        rlsdk.make("ars", env=TimeLimit(Endless(), 500), policy="LinearPolicy", n_delta=1, seed=0).learn(10)
    with pytest.warns(UserWarning, match="no episode ended in 50 steps"):
        assert run_episodes(ppo(), Endless(190), 2).lengths == [190, 190]


def test_a_video_that_does_not_fit_into_memory_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlsdk.runtime.memory.available_bytes", lambda: 1000)
    monkeypatch.setattr("rlsdk_lab.video.FRAMES_BETWEEN_CHECKS", 20)
    with pytest.raises(ResourceError, match=r"a video of more than 80 frames needs .*max_episode_steps"):
        record_video(ppo(), "tests/Endless-v0", tmp_path / "video.gif")


def test_the_log_of_a_training_without_ends_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlsdk.training.run.UNHEARD", 40)
    with pytest.warns(
        UserWarning, match="no episode has ended in the first 40 steps .*no rollout/ep_rew_mean; if"
    ) as seen:
        ppo(make_vec_env(Endless, 2)).learn(200)
    assert len([w for w in seen if "no episode has ended" in str(w.message)]) == 1, "once"
    settings: dict[str, Any] = {"buffer_size": 100, "learning_starts": 300, "seed": 0}
    with pytest.warns(UserWarning, match="this algorithm logs after whole episodes, so nothing is logged"):
        rlsdk.make("tqc", env=Endless(), **settings).learn(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "learn: ")
        ppo(TimeLimit(Endless(), 500)).learn(100)
        ppo(Endless(39)).learn(100)
