"""Environments that normalize by running statistics: trainings and evaluations in them give a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, TimeLimit

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault
from rlsdk.evaluation import run_episodes
from rlsdk_envs.toy import ChainEnv
from rlsdk_interchange.recording import record_episodes

SMALL: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "seed": 0}


class Walk(ChainEnv):
    """Observations have no bounds, as those of `NormalizeObservation`."""

    def __init__(self) -> None:
        super().__init__(3)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))


def normalized() -> gymnasium.Env[Any, Any]:
    return TimeLimit(NormalizeReward(NormalizeObservation(Walk())), 9)


def of_gymnasium(wrapper: str) -> Any:
    import gymnasium.wrappers.vector as wrappers

    vector = gymnasium.vector.SyncVectorEnv([Walk] * 2)
    return wrappers.RecordEpisodeStatistics(getattr(wrappers, wrapper)(vector))


BOTH = r"obs_rms, return_rms.*normalize=True \(norm_obs, norm_reward\)"
KINDS: dict[str, tuple[Callable[[], Any], str]] = {
    "one": (normalized, BOTH),
    "sync": (lambda: make_vec_env([Walk, normalized]), BOTH),
    "async": (lambda: make_vec_env(normalized, 2, vectorization="async"), BOTH),
    "collectors": (lambda: make_vec_env(normalized, 2, collectors=2), BOTH),
    "an id": (lambda: "Pendulum-v1?wrapper=NormalizeObservation", "obs_rms"),
    "of gymnasium": (lambda: gymnasium.vector.SyncVectorEnv([normalized]), BOTH),
    "of gymnasium in processes": (lambda: gymnasium.vector.AsyncVectorEnv([normalized]), BOTH),
    "vector observations": (lambda: of_gymnasium("NormalizeObservation"), r"obs_rms.*\(norm_obs\)"),
    "vector rewards": (lambda: of_gymnasium("NormalizeReward"), r"return_rms.*\(norm_reward\)"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_trainings_in_them_warn_and_name_the_setting(kind: str) -> None:
    make, words = KINDS[kind]
    env = make()
    with pytest.warns(UserWarning, match=f"the training environment .* running statistics of its own .*{words}"):
        model = rlsdk.make("ppo", env=env, **SMALL)
    assert model.env is not None
    model.env.close()


def test_evaluations_and_recordings_and_new_environments_warn_too(tmp_path: Path) -> None:
    model = rlsdk.make("ppo", env=Walk(), **SMALL)
    with pytest.warns(UserWarning, match="the evaluation environment"):
        run_episodes(model, normalized(), 1)
    with pytest.warns(UserWarning, match="the recorded environment"):
        record_episodes(model, normalized(), 1, tmp_path / "data")
    with pytest.warns(UserWarning, match="the training environment"):
        model.set_env(normalized())
    file = model.save(tmp_path / "agent")
    with pytest.warns(UserWarning, match="the training environment"):
        rlsdk.load(file, env=normalized())


def test_wrappers_without_statistics_and_frozen_ones_do_not() -> None:
    frozen = NormalizeObservation(Walk())
    frozen.update_running_mean = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for env in (
            RecordEpisodeStatistics(Walk()),
            frozen,
            gymnasium.vector.SyncVectorEnv([Walk]),
        ):
            run_episodes(rlsdk.make("ppo", env=env, **SMALL), Walk(), 1)


def test_vector_environments_of_the_documented_library_name_the_setting() -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    inner = vec_env.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])
    stacked = vec_env.VecFrameStack(vec_env.VecNormalize(inner), 4)
    with pytest.raises(EnvironmentFault) as refused:
        rlsdk.make("ppo", env=stacked)
    assert "VecFrameStack is the setting frame_stack=4 of the agent; VecNormalize is the setting normalize=True" in str(
        refused.value
    )
    with pytest.raises(EnvironmentFault) as refused:
        rlsdk.make("ppo", env=inner)
    assert "setting" not in str(refused.value)
