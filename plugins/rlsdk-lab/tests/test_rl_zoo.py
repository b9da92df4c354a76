"""Settings files of rl-baselines3-zoo as presets: their entries become settings, and no code in them is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlsdk.errors import SettingsError
from rlsdk.registry import load
from rlsdk.settings import structure
from rlsdk_lab import rl_zoo_preset
from rlsdk_lab.rl_zoo import tables_in
from tests.effort import limited
from tests.tables import in_one_test

FILE = """
default:
  n_timesteps: !!float 1e5
  policy: MlpPolicy

Shared: &shared
  n_envs: 4
  n_timesteps: 2000.0
  policy: 'MlpPolicy'
  normalize: true
  learning_rate: lin_1e-3

CartPole-v1:
  <<: *shared
  n_steps: 32
  max_grad_norm: 5
  clip_range: lin_0.2
  policy_kwargs: "dict(
                    activation_fn=nn.ReLU, ortho_init=False, log_std_init=-2,
                    net_arch=dict(pi=[16], vf=[8, 8])
                  )"

Pendulum-v1:
  <<: *shared
  normalize: "{'norm_obs': True, 'norm_reward': False}"

Wrapped-v0:
  n_timesteps: 10
  policy: MlpPolicy
  env_wrapper: WRAPPER
"""
NOISY = """
Pendulum-v1:
  n_timesteps: 300
  policy: 'MlpPolicy'
  noise_type: 'normal'
  noise_std: 0.1
  train_freq: [1, "episode"]
  gradient_steps: -1
  buffer_size: 1000
FetchReach-v4:
  n_timesteps: 300
  policy: 'MultiInputPolicy'
  noise_type: 'ornstein-uhlenbeck'
  noise_std: 0.5
  replay_buffer_class: HerReplayBuffer
  replay_buffer_kwargs: "dict(goal_selection_strategy='future', n_sampled_goal=4,)"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ppo.yml"
    path.write_text(FILE)
    return path


def changed(file: Path, entry: str, env: str = "CartPole-v1") -> Path:
    """Replace the content of the file by one table for `env` with this entry."""
    file.write_text(f"{env}:\n  n_timesteps: 100\n  policy: MlpPolicy\n  {entry}\n")
    return file


def test_a_table_is_a_preset(file: Path) -> None:
    found = rl_zoo_preset(file, load("ppo"), "CartPole-v1")
    assert (found.env, found.steps, found.n_envs, found.source) == ("CartPole-v1", 2000, 4, str(file))
    networks = {"activation_fn": "relu", "ortho_init": False, "log_std_init": -2}
    assert found.settings == {
        "policy": "MlpPolicy",
        "normalize": True,
        "learning_rate": "lin_1e-3",
        "n_steps": 32,
        "max_grad_norm": 5,
        "clip_range": "lin_0.2",
        "policy_kwargs": {**networks, "net_arch": {"pi": [16], "vf": [8, 8]}},
    }
    config = structure(found.settings, load("ppo").config_type)
    assert config.learning_rate(0.5) == pytest.approx(5e-4)
    assert rl_zoo_preset(file, load("ppo"), "Pendulum-v1").settings["normalize"] == {
        "norm_obs": True,
        "norm_reward": False,
    }


def test_noise_and_hindsight(file: Path) -> None:
    file.write_text(NOISY)
    found = rl_zoo_preset(file, load("td3"), "Pendulum-v1").settings
    assert found["action_noise"] == {"kind": "normal", "mean": 0.0, "sigma": 0.1}
    assert (found["train_freq"], found["gradient_steps"]) == ([1, "episode"], -1)
    found = rl_zoo_preset(file, load("ddpg"), "FetchReach-v4").settings
    assert found["action_noise"] == {"kind": "ornstein-uhlenbeck", "mean": 0.0, "sigma": 0.5}
    assert found["replay_buffer_class"] == "hindsight"
    assert found["replay_buffer_kwargs"] == {"goal_selection_strategy": "future", "n_sampled_goal": 4}


def test_the_default_table_is_for_all_others(file: Path) -> None:
    assert rl_zoo_preset(file, load("ppo"), "Acrobot-v1").steps == 100_000


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("sb3_contrib.common.wrappers.TimeFeatureWrapper", r"add --wrapper TimeFeature$"),
        ("[mine.wrappers.Slow, mine.Fast]", r"add --wrapper mine.wrappers:Slow --wrapper mine:Fast$"),
        ("[{mine.Skip: {skip: 2}}]", r"in mine.Skip\(skip=2\); .* add --wrapper 'mine:Skip\(skip=2\)'"),
    ],
)
def test_wrappers_are_not_imported(file: Path, wrapper: str, message: str) -> None:
    file.write_text(FILE.replace("WRAPPER", wrapper))
    with pytest.raises(SettingsError, match=message):
        rl_zoo_preset(file, load("ppo"), "Wrapped-v0")
    assert rl_zoo_preset(file, load("ppo"), "Wrapped-v0?wrapper=TimeFeature").steps == 10


@in_one_test
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("n_step: 8", r"CartPole-v1 has 'n_step', which ppo does not; did you mean 'n_steps'"),
        ("n_steps: many", "CartPole-v1: .*n_steps"),
        ("n_envs: 0", "n_envs = 0; give a positive whole number"),
        ("n_envs: 1.5", "n_envs = 1.5; give a positive whole number"),
        ("n_envs: .nan", "n_envs = nan; give a positive whole number"),
        ("n_envs: .inf", "n_envs = inf; give a positive whole number"),
        ("callback: mine.Callback", "callback = 'mine.Callback', which is not a setting"),
        ("env_kwargs: {gravity: 3}", "pass its entries with --env-kwargs NAME=VALUE"),
        ("noise_type: adaptive", "noise_type = 'adaptive'"),
        ("noise_type: normal", "noise_std = None"),
        ("policy_kwargs: \"dict(net_arch=__import__('os').system('exit 3'))\"", "is neither a literal"),
        ('policy_kwargs: "dict(net_arch=[64] * 3)"', r"\[64\] \* 3 is neither a literal"),
        ('policy_kwargs: "dict(**other)"', "a key is not a text"),
        ('policy_kwargs: "{1: 2}"', "a key is not a text"),
        ('policy_kwargs: "dict("', "cannot be read"),
        ('policy_kwargs: "dict(activation_fn=nn.Unknown)"', "activation 'unknown'"),
        (f'policy_kwargs: "{"[" * 2000}"', "cannot be read"),
        (f'policy_kwargs: "[{"1, " * 20_000}]"', "60002 characters, at most 10000 are read"),
    ],
)
def test_wrong_entries_are_refused_in_one_line(file: Path, entry: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as found:
        rl_zoo_preset(changed(file, entry), load("ppo"), "CartPole-v1")
    assert str(file) in str(found.value)
    assert "\n" not in str(found.value)


def test_files_without_the_table_are_refused(file: Path) -> None:
    with pytest.raises(SettingsError, match=r"no table for 'CartPole-v0'; did you mean 'CartPole-v1'"):
        rl_zoo_preset(changed(file, "n_steps: 8"), load("ppo"), "CartPole-v0")
    file.write_text("CartPole-v1:\n  policy: MlpPolicy\n")
    with pytest.raises(SettingsError, match="has no n_timesteps; add n_timesteps: 100000"):
        rl_zoo_preset(file, load("ppo"), "CartPole-v1")
    file.write_text("- a list\n")
    with pytest.raises(SettingsError, match="must hold a table"):
        rl_zoo_preset(file, load("ppo"), "CartPole-v1")
    file.write_text("CartPole-v1: !!python/object/apply:os.system [exit 3]\n")
    with pytest.raises(SettingsError, match="is not valid YAML"):
        rl_zoo_preset(file, load("ppo"), "CartPole-v1")


def test_a_run_starts_from_it(file: Path, tmp_path: Path, cli: Any) -> None:
    run = ("run", "ppo", "--preset", str(file), "--out", str(tmp_path / "run"), "--set", "n_steps=16")
    code, out, err = cli(*run, "--env", "CartPole-v1", "--steps", "128", "--set", "batch_size=64", "--eval-every", "0")
    assert code == 0, err
    assert "4 environments" in out or "n_envs=4" in out
    assert "--no-preset" not in out
    text = (tmp_path / "run" / "config.toml").read_text()
    assert "n_steps = 16" in text
    assert 'activation_fn = "relu"' in text
    code, _, err = cli("run", "ppo", "--preset", str(file), "--steps", "128")
    assert (code, len(err.strip().splitlines())) == (1, 1)
    assert "add --env ID" in err
    code, _, err = cli(*run, "--env", "CartPole-v1", "--preset", str(tmp_path / "missing.yml"))
    assert (code, len(err.strip().splitlines())) == (1, 1)
    assert "cannot be read" in err


def test_it_is_printed_as_a_settings_file(file: Path, cli: Any) -> None:
    code, out, err = cli("config", "ppo", "--preset", str(file), "--env", "CartPole-v1")
    assert code == 0, err
    assert 'clip_range = "lin_0.2"' in out
    code, _, err = cli("config", "ppo", "--preset", str(file))
    assert code == 1
    assert "add --env ID" in err
    code, _, err = cli("config", "ppo", "--env", "CartPole-v1", "--preset", "CartPole-v1")
    assert code == 1
    assert "--env chooses a table of a file" in err
    code, _, err = cli("config", "ppo", "--env", "CartPole-v1")
    assert code == 1
    assert "--env chooses a table of a file" in err


def test_tables_are_read_as_yaml_1_2(tmp_path: Path) -> None:
    (path := tmp_path / "a.yml").write_text(
        "gamma: 0.9\nlearning_rate: 1e-3\nname: on\npolicy_kwargs:\n  n_critics: 3\n"
    )
    assert tables_in(path) == {"gamma": 0.9, "learning_rate": 1e-3, "name": "on", "policy_kwargs": {"n_critics": 3}}
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        tables_in(tmp_path / "nowhere.yml")


ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 8)
)
"""300 bytes of YAML that stand for 4 million values."""
MERGED = "a0: &a0 {b: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 9))


@in_one_test
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ALIASES, "more than 10000 values, aliases included"),
        (
            ALIASES.replace("[x, x", "{<<: {b: 1}, c: [x").replace("x]", "x]}"),
            "more than 10000 values, aliases included",
        ),
        (MERGED, "more than 10000 values, aliases included"),
        ("a: &a [b, *a]\n", "the alias 'a' stands for what contains it"),
        ("a: " + "[" * 2000, "nested too deeply"),
        ("- " * 2000, "nested too deeply"),
        ("1: 2\n", "has the key 1, which is not a text; write it in quotes"),
        ("a: {b: {null: 3}}\n", "has the key None, which is not a text"),
        ("a: [{? [b, c] : 3}]\n", "which is not a text"),
        ("? {a: b}\n: 3\n", "is not valid YAML: while constructing a mapping"),
        ("a: !!float ''\n", "is not valid YAML"),
        ("a: !!int 0x_\n", "is not valid YAML"),
        ("a: 2001-99-99\n", "is not valid YAML"),
        ("#" * 300_000, "is larger than 256 kB"),
    ],
    ids=lambda text: text[:12],
)
def test_texts_in_yaml_that_are_refused_cost_little(tmp_path: Path, text: str, words: str) -> None:
    (path := tmp_path / "bad.yml").write_text(text)
    with limited(), pytest.raises(SettingsError) as refused:
        tables_in(path)
    assert words in str(refused.value)
    assert str(refused.value).startswith(f"settings file {path} ")
    assert "\n" not in str(refused.value)


def test_aliases_are_read(tmp_path: Path) -> None:
    (path := tmp_path / "good.yaml").write_text("a: &a {b: 1, c: [x]}\nd: *a\ne: {<<: *a, b: 2}\n")
    assert tables_in(path) == {"a": (a := {"b": 1, "c": ["x"]}), "d": a, "e": {"b": 2, "c": ["x"]}}
