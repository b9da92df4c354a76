"""Environment ids with arguments and wrappers: as text, on the command line, in files, and in files of unknown origin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, SettingsError
from rlsdk.registry import preset
from rlsdk.settings.load import EnvironmentId, applied, changed_environment, environment_id, text_of

NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda name: name != "wrapper")
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
VALUES = st.none() | SCALARS | st.lists(SCALARS, max_size=3)


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    """A wrapper that doubles the rewards."""

    def reward(self, reward: Any) -> Any:
        return 2.0 * float(reward)


OWN = "tests.environments.test_environment_ids:Doubled"


def rewards_of(envs: Any, steps: int = 3) -> list[float]:
    envs.reset(0)
    return [float(envs.step(torch.zeros(envs.num_envs, dtype=torch.int64)).reward[0]) for _ in range(steps)]


@given(st.dictionaries(NAMES, VALUES, max_size=3), st.lists(st.text(min_size=1, max_size=9), max_size=2))
def test_the_text_is_read_back(kwargs: dict[str, object], wrappers: list[str]) -> None:
    chosen = EnvironmentId("CartPole-v1", kwargs, tuple(wrappers))
    again = environment_id(str(chosen))
    assert again == chosen
    assert {name: type(value) for name, value in again.kwargs.items()} == {n: type(v) for n, v in kwargs.items()}


def test_changes_are_laid_over() -> None:
    base = "Ant-v5?a=1&b=x&wrapper=TimeFeature"
    change = changed_environment(None, ["b=2.5", "c=[1, 2]"], ["MaskVelocity"])
    assert applied(change, base) == "Ant-v5?a=1&b=2.5&c=[1,%202]&wrapper=TimeFeature&wrapper=MaskVelocity"
    assert applied(None, base) == base
    assert applied("Hopper-v5", base) == "Hopper-v5"
    assert changed_environment("Ant-v5", [], []) == "Ant-v5"
    assert text_of("Ant-v5", {"a": lambda: 1}, ()) is None
    assert text_of("Ant-v5", {}, (Doubled,)) is None


@pytest.mark.parametrize("text", ["CartPole-v1?x", "CartPole-v1?=1", "CartPole-v1?a=1&a=2", "CartPole-v1?a b=1"])
def test_what_is_no_argument_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="CartPole-v1"):
        make_vec_env(text)


@pytest.mark.parametrize("vectorization", ["sync", "async", "native"])
def test_arguments_reach_the_environment(vectorization: str) -> None:
    envs = make_vec_env("CartPole-v1?sutton_barto_reward=true", 2, vectorization=vectorization)
    assert rewards_of(envs) == [0.0, 0.0, 0.0]
    envs.close()


def test_wrappers_are_put_around_it() -> None:
    envs = make_vec_env(f"CartPole-v1?wrapper=TimeFeature&wrapper={OWN}", 2)
    assert rewards_of(envs) == [2.0, 2.0, 2.0]
    assert envs.observation_space.shape == (5,)
    with pytest.raises(SettingsError, match="takes no wrappers"):
        make_vec_env("CartPole-v1?wrapper=TimeFeature", 2, vectorization="native")


def test_what_text_can_hold_is_known_to_the_agent() -> None:
    envs = make_vec_env(
        "CartPole-v1", env_kwargs={"sutton_barto_reward": True, "render_mode": None}, wrappers=["TimeFeature"]
    )
    assert rlsdk.make("ppo", env=envs).env_name == "CartPole-v1?sutton_barto_reward=true&wrapper=TimeFeature"
    assert rlsdk.make("ppo", env=make_vec_env("CartPole-v1", wrappers=[Doubled])).env_name is None
    assert text_of("CartPole-v1", {"wrapper": "TimeFeature"}, ()) is None  # an argument has the reserved name `wrapper`
    assert (
        rlsdk.make("ppo", env="CartPole-v1?sutton_barto_reward=true").env_name == "CartPole-v1?sutton_barto_reward=true"
    )


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [
        ("TimeFeatur", "did you mean 'TimeFeature'"),
        ("nothing:Here", "No module named 'nothing'"),
        ("json:Here", "no attribute 'Here'"),
        ("json:__doc__", "must be a class or a function"),
    ],
)
def test_wrappers_that_are_not_there(wrapper: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        make_vec_env(f"CartPole-v1?wrapper={wrapper}")


def test_arguments_that_it_does_not_take() -> None:
    with pytest.raises(EnvironmentFault, match="unexpected keyword argument 'speed'"):
        make_vec_env("CartPole-v1?speed=1")
    with pytest.raises(EnvironmentFault, match=r"'CartPol-v1'.*did you mean"):
        make_vec_env("CartPol-v1?speed=1")


def test_presets_are_those_of_the_environment() -> None:
    found = preset("ppo", "CartPole-v1?sutton_barto_reward=true")
    assert found is not None
    assert found == preset("ppo", "CartPole-v1")


def test_a_run_keeps_its_environment(cli: Any) -> None:
    given = ("--env", "CartPole-v1", "--env-kwargs", "sutton_barto_reward=true", "--wrapper", "TimeFeature")
    short = ("--steps", "64", "--n-envs", "1", "--set", "n_steps=32", "--eval-episodes", "1", "--out", "run")
    code, _, err = cli("run", "ppo", *given, *short)
    assert code == 0, err
    text = "CartPole-v1?sutton_barto_reward=true&wrapper=TimeFeature"
    assert json.loads(Path("run/run.json").read_text())["env"] == text
    code, out, err = cli("eval", "run/final.rlsdk", "--episodes", "1", "--json")
    assert (code, json.loads(out)["env"], json.loads(out)["mean"]) == (0, text, -1.0), err
    code, out, err = cli(
        "eval", "run/final.rlsdk", "--episodes", "1", "--env-kwargs", "sutton_barto_reward=false", "--json"
    )
    assert json.loads(out)["mean"] > 1.0, err
    code, _, err = cli("run", "ppo", "--resume", "--steps", "96", "--out", "run")
    assert code == 0, err
    code, _, err = cli("run", "ppo", "--resume", "--steps", "128", "--out", "run", "--env-kwargs", "x=1")
    assert (code, "leave out --env-kwargs" in err) == (1, True)
    code, _, err = cli("run", "ppo", "--env-kwargs", "sutton_barto_reward=true", *short[:6])
    assert (code, "add --env" in err) == (1, True)


def test_a_suite_with_other_arguments(cli: Any) -> None:
    Path("small.toml").write_text(
        '[[cells]]\nalgorithm = "ppo"\nenv = "CartPole-v1"\nsteps = 64\nsettings = {n_steps = 32}\n'
    )
    code, _, err = cli("bench", "small.toml", "--seeds", "1", "--jobs", "1", "--env-kwargs", "sutton_barto_reward=true")
    assert code == 0, err
    assert "CartPole-v1?sutton_barto_reward=true" in Path("bench/small/summary.md").read_text()


@pytest.mark.parametrize(
    "text", [f"CartPole-v1?wrapper={OWN}", "CartPole-v1?model=/etc/passwd", "tests:CartPole-v1?x=1"]
)
def test_files_do_not_choose_what_is_imported_or_read(cli: Any, text: str) -> None:
    agent = rlsdk.make("ppo", env="CartPole-v1", n_steps=8, batch_size=8)
    agent.env_name = text
    agent.save("agent.rlsdk")
    code, _, err = cli("eval", "agent.rlsdk", "--episodes", "1")
    assert (code, "pass it with --env, or add --trust" in err) == (1, True)
    Path("suite.toml").write_text(f'[[cells]]\nalgorithm = "ppo"\nenv = "{text}"\nsteps = 8\n')
    code, _, err = cli("bench", "suite.toml", "--seeds", "1")
    assert (code, "--trust" in err) == (1, True)
