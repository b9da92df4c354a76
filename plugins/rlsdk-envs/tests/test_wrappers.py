"""Wrappers and the environment checker."""

from __future__ import annotations

import csv
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check

from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, EnvironmentFault, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk_envs import (
    ActionMasker,
    CheckNan,
    MaskVelocity,
    Monitor,
    TimeFeature,
    check_env,
    load_results,
    make_atari_env,
    plot_results,
    ts2xy,
)
from rlsdk_envs.toy import (
    AnySpaceEnv,
    ChainEnv,
    FakeImageEnv,
    IdentityEnvBox,
    InvalidActionEnvDiscrete,
    SimpleMultiObsEnv,
)
from rlsdk_tqc import TQC
from rlsdk_trpo import TRPO


def drive(env: Any, steps: int) -> list[Any]:
    observation, _ = env.reset(seed=0)
    seen = [observation]
    for _ in range(steps):
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.append(observation)
        if terminated or truncated:
            break
    return seen


def test_time_feature_of_a_vector() -> None:
    env = TimeFeature(gymnasium.make("Pendulum-v1"))
    seen = drive(env, 300)
    assert env.observation_space.shape == (4,)
    assert [round(float(o[3]), 6) for o in seen[:3]] == [1.0, 0.995, 0.99]
    assert seen[-1][3] == 0.0
    assert all(env.observation_space.contains(o) for o in seen)
    assert all(o[3] == 0.0 for o in drive(TimeFeature(gymnasium.make("Pendulum-v1"), test_mode=True), 3))
    assert drive(TimeFeature(ChainEnv(length=50), max_steps=10), 1)[1][2] == pytest.approx(0.9)


@pytest.mark.parametrize("env", [SimpleMultiObsEnv(), FakeImageEnv()])
def test_time_feature_of_anything_else(env: Any) -> None:
    wrapped = TimeFeature(env, max_steps=20)
    seen = drive(wrapped, 5)
    assert [float(o["time_feature"][0]) for o in seen[:2]] == [1.0, pytest.approx(0.95)]
    assert all(wrapped.observation_space.contains(o) for o in seen)
    if isinstance(env, SimpleMultiObsEnv):
        TQC(
            "MultiInputPolicy",
            wrapped,
            buffer_size=50,
            learning_starts=5,
            batch_size=4,
            policy_kwargs={"net_arch": [4]},
        ).learn(8)


def test_mask_velocity() -> None:
    plain, masked = gymnasium.make("Pendulum-v1"), MaskVelocity(gymnasium.make("Pendulum-v1"))
    a, b = plain.reset(seed=3)[0], masked.reset(seed=3)[0]
    assert b.tolist() == [a[0], a[1], 0.0]
    assert drive(MaskVelocity(ChainEnv(), indices=[0]), 2)[1].tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="indices"):
        MaskVelocity(ChainEnv())
    with pytest.raises(ValueError, match="vector"):
        MaskVelocity(FakeImageEnv(), indices=[0])


class Faulty(ChainEnv):
    def __init__(self, field: str, value: float) -> None:
        super().__init__(length=10)
        self.field, self.value = field, value

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        if self.position == 3 and self.field == "observation":
            observation[1] = self.value
        return observation, self.value if self.position == 3 and self.field == "reward" else reward, *rest


@pytest.mark.parametrize("field", ["observation", "reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_check_nan_names_step_field_and_action(field: str, value: float) -> None:
    env = CheckNan(Faulty(field, value))
    env.reset(seed=0)
    action = np.array([0.25], np.float32)
    env.step(action)
    env.step(action)
    words = rf"'Faulty', step 3: {field} holds {value}; the last action was \[0.25\]"
    with pytest.raises(EnvironmentFault, match=words):
        env.step(action)
    env.reset()
    with pytest.raises(EnvironmentFault, match="action holds nan"):
        env.step(np.array([np.nan], np.float32))
    if np.isinf(value):
        drive(CheckNan(Faulty(field, value), check_inf=False), 5)


def test_monitor_writes_and_continues_a_file(tmp_path: Path) -> None:
    for _ in range(2):
        env = Monitor(ChainEnv(length=4), tmp_path)
        for _ in range(3):
            env.reset()
            for _ in range(4):
                *_, info = env.step(env.action_space.sample())
        assert info["episode"]["r"] == 6.0
        assert info["episode"]["l"] == 4
    lines = (tmp_path / "monitor.csv").read_text().splitlines()
    assert json.loads(lines[0][1:])["env_id"] == "ChainEnv"
    assert lines[1] == "r,l,t"
    assert len(list(csv.DictReader(lines[1:]))) == 6
    results = load_results(tmp_path)
    assert results["r"] == [6.0] * 6
    assert results["l"] == [4.0] * 6
    assert results["t"] == sorted(results["t"])
    first, _, *rows = (json.loads(lines[0][1:])["t_start"], *lines[1:])
    assert results["t"][0] == pytest.approx(float(rows[0].split(",")[2]), abs=1e-6)
    (tmp_path / "later.monitor.csv").write_text(f"#{json.dumps({'t_start': first + 5.0})}\nr,l,t\n1,1,2\n")
    assert max(load_results(tmp_path)["t"]) == pytest.approx(7.0)


def test_monitor_refuses_misuse(tmp_path: Path) -> None:
    env = Monitor(ChainEnv(length=4), tmp_path / "a", allow_early_resets=False)
    assert (tmp_path / "a.monitor.csv").exists()
    with pytest.raises(UsageError, match="call reset"):
        env.step(env.action_space.sample())
    env.reset()
    env.step(env.action_space.sample())
    with pytest.raises(UsageError, match="not over"):
        env.reset()
    with pytest.raises(SettingsError, match="columns"):
        Monitor(ChainEnv(), tmp_path / "a", info_keywords=("is_success",))
    asking = Monitor(ChainEnv(length=1), tmp_path / "b", info_keywords=("is_success",))
    asking.reset()
    with pytest.raises(SettingsError, match="is_success"):
        asking.step(asking.action_space.sample())
    with pytest.raises(SettingsError, match="holds no"):
        load_results(tmp_path / "empty")


def test_training_under_a_monitor_sees_the_same_returns(tmp_path: Path) -> None:
    env = make_vec_env(lambda: Monitor(IdentityEnvBox(episode_length=10), tmp_path / "m"))
    returns: list[float] = []
    model = TQC("MlpPolicy", env, buffer_size=100, learning_starts=5, batch_size=8, policy_kwargs={"net_arch": [4]})
    model.learn(40, callback=LambdaCallback(on_episode=lambda run, episode: returns.append(episode.episode_return)))
    assert load_results(tmp_path)["r"] == pytest.approx(returns, abs=1e-5)


def test_action_masker() -> None:
    env = InvalidActionEnvDiscrete(5, 2)
    by_function = ActionMasker(env, lambda inner: inner.action_masks())
    by_name = ActionMasker(env, "action_masks")
    env.reset(seed=1)
    assert by_function.action_masks().tolist() == by_name.action_masks().tolist() == env.action_masks().tolist()
    with pytest.raises(ValueError, match="no method 'masks'"):
        ActionMasker(env, "masks")


class Allowing(gymnasium.Wrapper[Any, Any, Any, Any]):
    def first_two(self) -> list[bool]:
        return [True, True, False]

    def all_but_last(self, env: gymnasium.Env[Any, Any]) -> list[bool]:
        return [*[True] * (int(env.get_wrapper_attr("action_space").n) - 1), False]


@pytest.mark.parametrize("name", ["first_two", "all_but_last"])
def test_action_masker_finds_methods_of_wrappers_also_those_that_take_the_environment(name: str) -> None:
    inner = Allowing(InvalidActionEnvDiscrete(3, 1))
    for env in (inner, gymnasium.wrappers.TimeLimit(inner, 5)):
        assert ActionMasker(env, name).action_masks().tolist() == [True, True, False]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_wrapped_environments_pass_gymnasiums_checker(tmp_path: Path) -> None:
    make = lambda: gymnasium.make("Pendulum-v1").unwrapped  # noqa: E731
    wrappers = (TimeFeature, CheckNan, lambda e: Monitor(e, tmp_path / "x"), lambda e: MaskVelocity(e, [2]))
    for wrap in wrappers:
        gymnasium_check(wrap(make()), skip_render_check=True)


def advice(env: Any) -> str:
    return " | ".join(map(str, check_env(env, warn=False)))


def test_check_env_gives_advice() -> None:
    assert check_env(gymnasium.make("Pendulum-v1").unwrapped, warn=False) != []
    unit = spaces.Box(-1.0, 1.0, (1,), np.float32)
    assert check_env(AnySpaceEnv(spaces.Box(-1, 1, (2,), np.float32), unit), warn=False) == []
    assert "[-1, 1] suits" in advice(gymnasium.make("Pendulum-v1").unwrapped)
    wide = spaces.Box(-1000, 1000, (2,), np.float64)
    text = advice(AnySpaceEnv(wide, spaces.Box(-1, 1, (1,), np.float64)))
    assert all(word in text for word in ("normalize", "float64", "declare it so"))
    image = advice(AnySpaceEnv(spaces.Box(0.0, 1.0, (40, 40, 3), np.float32), unit))
    assert "not be treated as an image" in image
    assert "36 x 36" in advice(AnySpaceEnv(spaces.Box(0, 255, (20, 20, 3), np.uint8), unit))
    assert "flattened" in advice(AnySpaceEnv(spaces.Dict({"a": spaces.Box(-1, 1, (3, 2), np.float32)}), unit))
    assert "no time limit" in advice(ChainEnv(length=10_000))
    assert "finite bounds" in advice(
        AnySpaceEnv(spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-np.inf, np.inf, (1,), np.float32))
    )
    with pytest.warns(UserWarning, match="time limit"):
        check_env(ChainEnv(length=10_000))


def test_check_env_refuses_what_is_broken() -> None:
    class Liar(ChainEnv):
        def step(self, action: Any) -> Any:
            observation, *rest = super().step(action)
            return np.zeros(7, np.float32) if self.position > 2 else observation, *rest

    with pytest.raises(EnvironmentFault, match="shape"):
        check_env(Liar(length=50))
    with pytest.raises(EnvironmentFault, match=r"not a gymnasium\.Env"):
        check_env(3)
    with pytest.raises(UnsupportedSpaceError, match="Text"):
        check_env(AnySpaceEnv(spaces.Text(4), spaces.Discrete(2)))
    with pytest.raises(EnvironmentFault, match=r"step 2: .*gave the reward inf .*must be a finite float32"):
        check_env(Faulty("reward", float("inf")), warn=False)


def test_monitor_has_the_documented_members(tmp_path: Path) -> None:
    env = Monitor(ChainEnv(length=4), tmp_path / "x", True, ("options",))
    with pytest.raises(UsageError, match=r"reset needs \['options'\]"):
        env.reset()
    for level in (1, 2):
        env.reset(options=level)
        for _ in range(4):
            env.step(np.zeros(1))
    env.reset(options=3)
    env.step(np.zeros(1))
    assert env.get_total_steps() == 9
    assert env.get_episode_rewards() == [6.0, 6.0]
    assert env.get_episode_lengths() == [4, 4]
    assert env.get_episode_times() == sorted(env.get_episode_times())
    lines = (tmp_path / "x.monitor.csv").read_text().splitlines()
    assert lines[1] == "r,l,t,options"
    assert [line.rpartition(",")[2] for line in lines[2:]] == ["1", "2"]
    Monitor(ChainEnv(length=4), tmp_path / "x", override_existing=True)
    assert (tmp_path / "x.monitor.csv").read_text().splitlines()[1:] == ["r,l,t"]


def test_a_monitored_training_is_resumed_in_the_middle_of_an_episode(tmp_path: Path) -> None:
    def make() -> Any:
        return Monitor(ChainEnv(length=50), tmp_path / "m")

    settings: Any = {"n_steps": 8, "policy_kwargs": {"net_arch": [4]}, "seed": 0}
    model = TRPO("MlpPolicy", make(), **settings).learn(8)
    model.save(tmp_path / "agent")
    loaded = TRPO.load(tmp_path / "agent", env=make(), force_reset=False)
    loaded.learn(8)
    assert loaded.env.get_attr("_rewards")[0] == [float(i) for i in range(16)]


def test_monitor_folders_as_curves(tmp_path: Path) -> None:
    env = Monitor(ChainEnv(length=2), tmp_path)
    for _ in range(120):
        env.reset()
        env.step(np.zeros(1))
        env.step(np.zeros(1))
    results = load_results(tmp_path)
    x, y = ts2xy(results, "timesteps")
    assert x.tolist()[:3] == [2, 4, 6]
    assert set(y) == {1.0}
    assert ts2xy(results, "episodes")[0].tolist() == list(range(120))
    assert ts2xy(results, "walltime_hrs")[0].max() < 1.0
    with pytest.raises(SettingsError, match="accepted: timesteps, episodes, walltime_hrs"):
        ts2xy(results, "steps")
    pytest.importorskip("matplotlib")
    plot_results([tmp_path], 200, "timesteps", "chain").savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000
    (tmp_path / "broken.monitor.csv").write_text("no json\n1,2")
    with pytest.raises(SettingsError, match=r"broken.monitor.csv is not a monitor file"):
        load_results(tmp_path)


def test_the_documented_atari_preprocessing() -> None:
    pytest.importorskip("ale_py")
    env = make_atari_env("ALE/Breakout-v5", n_envs=2, seed=0, wrapper_kwargs={"noop_max": 3})
    assert env.get_attr("unwrapped")[0]._frameskip == 1
    assert env.env_method("has_wrapper_attr", "lives") == [True, True]
    first = env.reset()
    assert first.features.shape == (2, 84, 84, 1)
    ended, rewards = 0, set[float]()
    for t in range(150):
        step = env.step(torch.full((2,), t % 4))
        ended += int(step.terminated.sum())
        rewards |= set(step.reward.tolist())
    assert ended >= 2, "a lost life ends an episode"
    assert rewards <= {0.0, 1.0}
    assert 0 < env.get_attr("lives")[0] < 5, "the game continues"
    env.close()


def test_a_monitor_on_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the header would be in the way of the next monitor, a part of a row in that of `load_results`."""
    env = Monitor(gymnasium.make("CartPole-v1"), tmp_path / "a")
    whole = (tmp_path / "a.monitor.csv").read_bytes()

    def play() -> None:
        env.reset(seed=0)
        while not any(env.step(0)[2:4]):
            pass

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ArtifactError, match=r"cannot write .*b\.monitor\.csv: No space left on device"):
            Monitor(gymnasium.make("CartPole-v1"), tmp_path / "b")
        assert [path.name for path in tmp_path.iterdir()] == ["a.monitor.csv"]
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 3, limit[1]))
    try:
        with pytest.raises(ArtifactError, match=r"cannot write .*a\.monitor\.csv"):
            play()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert (tmp_path / "a.monitor.csv").read_bytes() == whole
    play()
    assert load_results(tmp_path)["l"] == [float(env.get_episode_lengths()[-1])]
