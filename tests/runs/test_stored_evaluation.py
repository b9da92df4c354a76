"""`rlsdk eval --jobs`: each part of the episodes has its own seed, and the executor does not change the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.runs.stored_evaluation import EvaluationRequest, evaluate_stored
from rlsdk_ppo import PPO


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """A file of an untrained agent."""
    path = PPO("MlpPolicy", "CartPole-v1", seed=0).save(tmp_path / "agent")
    assert path is not None
    return path


@pytest.mark.parametrize("deterministic", [True, False])
def test_parts_are_evaluations_with_seeds_of_their_own(agent: Path, deterministic: bool) -> None:
    request = EvaluationRequest(episodes=8, n_envs=2, deterministic=deterministic, seed=5, parts=3)
    found = evaluate_stored(agent, None, request, "in-process")[1]
    expected, model = [], PPO.load(agent)
    for episodes, seed in ((2, 5), (3, 7), (3, 9)):
        env = make_vec_env("CartPole-v1", 2)
        expected += run_episodes(model, env, episodes, deterministic=deterministic, seed=seed).returns
    assert found.returns == expected
    assert found.deterministic == deterministic


def test_one_part_is_the_evaluation_itself(agent: Path) -> None:
    request = EvaluationRequest(episodes=3, seed=2)
    played = run_episodes(PPO.load(agent), make_vec_env("CartPole-v1", 1), 3, seed=2)
    assert evaluate_stored(agent, None, request) == ("CartPole-v1", played)


@pytest.mark.full
def test_the_command_plays_parts_in_processes_as_here(agent: Path, cli: Any) -> None:
    command = ("eval", str(agent), "--episodes", "5", "--jobs", "2", "--stochastic", "--json")
    returns = []
    for executor in ("in-process", "processes"):
        code, out, err = cli(*command, "--executor", executor)
        assert code == 0, err
        returns.append(json.loads(out)["returns"])
    assert returns[0] == returns[1]
    assert len(returns[0]) == 5


def test_wrong_numbers_and_names_are_refused(agent: Path, cli: Any) -> None:
    with pytest.raises(SettingsError, match="5 parts of 3 episodes: give 1 to 3 parts"):
        evaluate_stored(agent, None, EvaluationRequest(episodes=3, parts=5))
    for options, message in (
        (("--jobs", "2", "--executor", "prozesses"), "did you mean 'processes'"),
        (("--executor", "prozesses"), "did you mean 'processes'"),
        (("--jobs", "30", "--episodes", "3"), "give 1 to 3 parts"),
        (("--jobs", "2", "--env", "Pendulum-v1"), "the agent was made for"),
    ):
        code, out, err = cli("eval", str(agent), *options)
        assert code == 1, out
        assert message in err
        assert len(err.strip().splitlines()) == 1
    code, _, err = cli("eval", str(agent), "--jobs", "0")
    assert code == 2


def test_a_file_names_a_module_only_with_trust(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that play episodes import the module of an agent's environment only with `--trust`."""
    (tmp_path / "corridors.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Corridor-v0', CartPoleEnv, max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = "corridors:Corridor-v0"
    file = PPO("MlpPolicy", own, seed=0).save(tmp_path / "own")
    for command in (("eval", "--episodes", "1"), ("record", "-o", "a.gif"), ("record-episodes", "--episodes", "1")):
        code, _, err = cli(command[0], str(file), *command[1:])
        assert (code, f"names the environment {own!r}" in err) == (1, True), err
        code, _, err = cli(command[0], str(file), *command[1:], "--trust")
        assert code == 0, err
