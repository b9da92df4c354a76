"""The statistics of `VecNormalize` are imported from the file that it writes, which is not run."""

from __future__ import annotations

import copy
import pickle
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlsdk.errors import ArtifactError, SettingsError
from rlsdk_envs.toy import AnySpaceEnv
from rlsdk_interchange.sb3 import import_sb3

peer = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402  # it comes with the peer
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402

BOX = spaces.Box(-5.0, 5.0, (3,), np.float32)
DICT = spaces.Dict({"z": BOX, "a": spaces.Box(0.0, 9.0, (2, 2), np.float32), "n": spaces.Discrete(3)})
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "defaults": (BOX, {}),
    "settings": (BOX, {"clip_obs": 0.5, "clip_reward": 3.0, "epsilon": 0.1, "gamma": 0.9}),
    "observations": (BOX, {"norm_reward": False}),
    "rewards": (BOX, {"norm_obs": False}),
    "dict": (DICT, {"norm_obs_keys": ["z", "a"]}),
    "one entry": (DICT, {"norm_obs_keys": ["z"]}),
    "unsorted entries": (spaces.Dict(OrderedDict(z=BOX, a=BOX)), {"norm_obs_keys": ["a", "z"]}),
}


def trained(space: spaces.Space[Any], settings: dict[str, Any], folder: Path) -> tuple[Any, Any]:
    """A model and its environments, saved in a folder."""
    envs = make_vec_env(lambda: AnySpaceEnv(space, spaces.Box(-1.0, 1.0, (2,), np.float32), 20), 2, seed=0)
    envs = VecNormalize(envs, **settings)
    policy = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy"
    model = peer.PPO(policy, envs, n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu").learn(128)
    model.save(folder / "model.zip")
    envs.save(folder / "statistics.pkl")
    return model, envs


def environment(space: spaces.Space[Any]) -> Any:
    return AnySpaceEnv(space, spaces.Box(-1.0, 1.0, (2,), np.float32), 20)


@pytest.mark.parametrize("case", CASES)
def test_predictions_and_statistics_are_the_same(case: str, tmp_path: Path) -> None:
    space, settings = CASES[case]
    model, envs = trained(space, settings, tmp_path)
    ours = import_sb3(tmp_path / "model.zip", "ppo", environment(space), vecnormalize=tmp_path / "statistics.pkl")
    space.seed(0)
    for observation in (space.sample() for _ in range(20)):
        expected, _ = model.predict(envs.normalize_obs(observation), deterministic=True)
        assert np.allclose(ours.predict(observation, deterministic=True)[0], expected, atol=1e-5)
    found = ours.config.normalize
    for name in ("norm_obs", "norm_reward", "clip_obs", "clip_reward", "epsilon", "gamma"):
        assert getattr(found, name) == getattr(envs, name), name
    state = ours.preprocessing.normalizer.state_dict()
    if envs.norm_reward:
        assert float(state["reward"]["variance"]) == pytest.approx(float(envs.ret_rms.var), rel=1e-12)
        assert float(state["reward"]["count"]) == pytest.approx(envs.ret_rms.count, rel=1e-12)
    ours.learn(64)


def test_the_algorithm_of_the_numpy_file_still_works(tmp_path: Path) -> None:
    _, envs = trained(BOX, {"norm_reward": False}, tmp_path)
    np.savez(tmp_path / "s.npz", mean=envs.obs_rms.mean, var=envs.obs_rms.var, count=envs.obs_rms.count)
    one, other = (
        import_sb3(tmp_path / "model.zip", "ppo", environment(BOX), vecnormalize=tmp_path / name)
        for name in ("s.npz", "statistics.pkl")
    )
    BOX.seed(1)
    for observation in (BOX.sample() for _ in range(5)):
        assert np.array_equal(*(agent.predict(observation, deterministic=True)[0] for agent in (one, other)))


class Runs:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code of the file was run')",)


def altered(envs: Any, **moments: Any) -> bytes:
    """The pickle of environments with other moments of observations."""
    original = envs.obs_rms
    envs.obs_rms = copy.copy(original)
    vars(envs.obs_rms).update(moments)
    content = pickle.dumps(envs)
    envs.obs_rms = original
    return content


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    _, envs = trained(BOX, {}, tmp_path)
    trained_on_dict = tmp_path / "dict"
    trained_on_dict.mkdir()
    trained(DICT, {"norm_obs_keys": ["z", "a"]}, trained_on_dict)
    content = (tmp_path / "statistics.pkl").read_bytes()
    files = {
        "missing.pkl": None,
        "empty.pkl": b"",
        "text.pkl": b"mean, var, count",
        "half.pkl": content[: len(content) // 2],
        "code.pkl": pickle.dumps(Runs()),
        "model.pkl": pickle.dumps({"mean": 0.0, "var": 1.0}),
        "no_moments.pkl": content.replace(b"obs_rms", b"obs_xxx"),
        "negative.pkl": altered(envs, var=-np.ones(3)),
        "not_finite.pkl": altered(envs, mean=np.array([0.0, np.nan, 0.0])),
        "other_axes.pkl": altered(envs, mean=np.zeros((3, 1)), var=np.ones((3, 1))),
        "larger.pkl": altered(envs, mean=np.zeros(4)),
        "setting.pkl": content.replace(b"clip_obs\x94G", b"clip_obs\x94]K", 1),
        "objects.pkl": altered(envs, mean=np.array([None, None, None])),
        "other.pkl": (trained_on_dict / "statistics.pkl").read_bytes(),
    }
    for name, each in files.items():
        if each is not None:
            (tmp_path / name).write_bytes(each)
        with pytest.raises((ArtifactError, SettingsError)) as caught:
            import_sb3(tmp_path / "model.zip", "ppo", environment(BOX), vecnormalize=tmp_path / name)
        assert "\n" not in str(caught.value)
        assert (name if name != "other.pkl" else "norm_obs_keys names ['a', 'z']") in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "named"),
    [(False, "normalize = false"), ({"norm_obs": False}, "normalize.norm_obs = false")],
    ids=["off", "observations off"],
)
def test_settings_without_use_for_statistics_are_refused(setting: Any, named: str, tmp_path: Path) -> None:
    trained(BOX, {}, tmp_path)
    file = tmp_path / "statistics.pkl"
    with pytest.raises(SettingsError, match=re.escape(f"{named} is set, so the statistics in {file} are not used")):
        import_sb3(tmp_path / "model.zip", "ppo", environment(BOX), vecnormalize=file, normalize=setting)
