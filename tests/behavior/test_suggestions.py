"""Messages about unknown names lead to ours: what other libraries call a setting, option, command, member or argument."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

import rlsdk
from rlsdk.cli.main import app
from rlsdk.errors import (
    CALLED_ELSEWHERE,
    OTHER_VALUES,
    ArtifactError,
    SettingsError,
    UnknownAttributeError,
    UnsupportedSpaceError,
    UsageError,
    closest,
    difference,
)
from rlsdk.registry import load
from rlsdk_datasets import RecordedEpisode, write_episodes
from rlsdk_envs.toy import BitFlippingEnv
from rlsdk_interchange import record_episodes
from rlsdk_ppo import PPO
from tests.combination_table import OURS, settings_of

ON: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "seed": 0}


@pytest.mark.parametrize(
    ("algorithm", "names"),
    [
        (
            "ppo",
            "lr=learning_rate num_steps=n_steps clip_eps=clip_range ent_weight=ent_coef lam=gae_lambda"
            " update_epochs=n_epochs minibatch_size=batch_size vf_weight=vf_coef discount=gamma LR=learning_rate",
        ),
        (
            "sac",
            "replay_size=buffer_size polyak=tau start_steps=learning_starts update_every=train_freq alpha=ent_coef"
            " target_update_freq=target_update_interval",
        ),
        ("dqn", "epsilon=exploration_initial_eps eps_end=exploration_final_eps memory_size=buffer_size"),
        ("td3", "policy_noise=target_policy_noise noise_clip=target_noise_clip policy_freq=policy_delay"),
    ],
)
def test_settings(algorithm: str, names: str) -> None:
    known = [field.name for field in attrs.fields(load(algorithm).config_type)]
    for pair in names.split():
        theirs, ours = pair.split("=")
        assert closest(theirs, known) == ours
        end = re.escape(difference(theirs, ours, " "))
        with pytest.raises(SettingsError, match=rf"unknown setting '{theirs}'; did you mean '{ours}'\?{end}$"):
            rlsdk.make(algorithm, env="CartPole-v1" if algorithm in ("ppo", "dqn") else "Pendulum-v1", **{theirs: 1})


def test_a_name_whose_value_is_another() -> None:
    """A value that is inverted, in another unit or of another kind elsewhere must not be copied under our name."""
    with pytest.raises(SettingsError, match=r"'polyak'; did you mean 'tau'\? tau is 1 - polyak$"):
        rlsdk.make("sac", env="Pendulum-v1", polyak=0.995)
    with pytest.raises(
        SettingsError, match=r"'batch_size'\? batch_size is n_steps \* number of environments / nminibatches$"
    ):
        rlsdk.make("ppo", env="CartPole-v1", nminibatches=4)
    done = CliRunner().invoke(app, ["run", "sac", "--env", "Pendulum-v1", "--steps", "10", "--polyak", "0.995"])
    assert "it is a setting: --set tau=VALUE, where tau is 1 - polyak" in done.output
    aliases = {alias for names in CALLED_ELSEWHERE.values() for alias in names.split()}
    assert set(OTHER_VALUES) <= aliases


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("n_envs", "make_vec_env"),
        ("num_envs", "make_vec_env"),
        ("hidden_sizes", "policy_kwargs={'net_arch': "),
        ("activation", "policy_kwargs={'activation_fn': "),
        ("total_timesteps", r"learn\(total_timesteps\)"),
    ],
)
def test_what_is_given_elsewhere_than_in_settings(name: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"unknown setting '{name}'; .*{words}"):
        PPO("MlpPolicy", "CartPole-v1", **{name: 1})


def test_no_name_of_ours_means_another_setting() -> None:
    """An alias that one algorithm has as a setting of its own would be a wrong suggestion for that algorithm alone."""
    aliases = {alias: ours for ours, names in CALLED_ELSEWHERE.items() for alias in names.split()}
    for algorithm in OURS:
        settings = settings_of(load(algorithm).config_type)
        assert all(closest(name, settings) is not None for name in settings)
        for alias in settings & set(aliases):
            assert aliases[alias] not in settings or closest(alias, settings) == aliases[alias]
    every = [alias for names in CALLED_ELSEWHERE.values() for alias in names.split()]
    assert {alias for alias in every if every.count(alias) > 1} <= {"fit", "num_steps"}


def test_members(tmp_path: Path) -> None:
    model = PPO("MlpPolicy", "CartPole-v1", **ON)
    for name, words in {
        "lr": "did you mean 'learning_rate'",
        "action_probability": r"model\.policy\.get_distribution",
        "act": r"predict\(observation\)",
        "state_dict": r"get_parameters\(\)",
        "evaluate": r"rlsdk\.evaluation\.evaluate_policy",
    }.items():
        with pytest.raises(UnknownAttributeError, match=f"{name}'; {words}"):
            getattr(model, name)
    for which in ("exclude", "include"):
        with pytest.raises(SettingsError, match="no section 'bogus'") as caught:
            model.save(tmp_path / "x", **{which: ["bogus"]})  # type: ignore[arg-type]
        assert "__" not in str(caught.value)
        assert "accepted: " in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_arguments() -> None:
    with pytest.raises(SettingsError, match=r"'prioritized' has no 'beta0'; did you mean 'beta'\?$"):
        rlsdk.make("dqn", env="CartPole-v1", replay_buffer_class="prioritized", replay_buffer_kwargs={"beta0": 0.4})
    hindsight = {"replay_buffer_class": "hindsight", "replay_buffer_kwargs": {"nonsense": 1}}
    with pytest.raises(SettingsError, match=r"'hindsight' has no 'nonsense'; accepted: .*goal_selection_strategy"):
        rlsdk.make("dqn", policy="MultiInputPolicy", env=BitFlippingEnv(3), **hindsight)
    for widths, words in (([8, "lstm"], "'MlpLstmPolicy'"), (["cnn", 8], "'CnnPolicy'"), ([8, "x"], "up to 1048576$")):
        with pytest.raises(SettingsError, match=words):
            PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": widths}, **ON)


def test_files_of_stable_baselines3_name_the_command(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("data", "{}")
        file.writestr("policy.pth", "")
    for read in (PPO.load, rlsdk.load):
        with pytest.raises(ArtifactError, match=r"rlsdk import .*x\.zip"):
            read(tmp_path / "x.zip")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trian ppo", "Did you mean 'train'"),
        ("train ppo --stepz 1", "rlsdk run --help"),
        ("enjoy x", "there is no file or folder x"),
        ("runn x", "Did you mean 'run'"),
        ("nonsense", "No such command 'nonsense'."),
        ("run ppo --lr 1", "--set learning_rate=VALUE"),
        ("run ppo --learning-rate 1", "--set learning_rate=VALUE"),
        ("run ppo --hidden-sizes 1", "--set policy_kwargs.net_arch=VALUE"),
        ("run ppo --num_envs 2", "--n-envs"),
        ("run ppo --total-timesteps 9", "--steps"),
        ("run ppo --evn x", "--env"),
        ("run --algo ppo", "the algorithm is the first argument"),
        ("run ppo --qqqq 1", "settings of the algorithm are given as --set NAME=VALUE"),
        ("run ppo --env CartPole-v1 --steps 8 --set lr=1", "unknown setting 'lr'; did you mean 'learning_rate'?"),
    ],
)
def test_commands_and_options(line: str, words: str, cli: Any) -> None:
    code, _, err = cli(*line.split())
    assert code != 0
    assert words in err
    assert "Traceback" not in err


def test_episodes_take_the_spaces_of_gymnasium(tmp_path: Path) -> None:
    env = gymnasium.make("CartPole-v1")
    episode: Any = RecordedEpisode(np.zeros((4, 4)), np.zeros(3), np.zeros(3), True)  # type: ignore[arg-type]
    path = write_episodes(tmp_path / "episodes", [episode], env.observation_space, env.action_space)
    assert PPO("MlpPolicy", "CartPole-v1", **ON).pretrain(path, n_epochs=1) is not None
    with pytest.raises(UnsupportedSpaceError, match="observation_space"):
        write_episodes(tmp_path / "more", [episode], 3, env.action_space)


def test_rules_may_return_arrays_and_their_errors_say_what_they_get(tmp_path: Path) -> None:
    """A rule on arrays, as one for gymnasium, got a bare TypeError."""
    paths = [
        record_episodes(rule, "CartPole-v1", 2, tmp_path / name, seed=0)
        for name, rule in {
            "arrays": lambda seen: (seen.features[:, 2] > 0).long().numpy(),
            "tensors": lambda seen: (seen.features[:, 2] > 0).long(),
        }.items()
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    for rule in (lambda seen: (seen[:, 2] > 0).astype(int), lambda seen: np.zeros(len(seen))):
        with pytest.raises(UsageError, match=r"raised TypeError: .*test_suggestions.*observation\.features") as caught:
            record_episodes(rule, "CartPole-v1", 2, tmp_path / "none", seed=0)
        assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.glob("none*"))
