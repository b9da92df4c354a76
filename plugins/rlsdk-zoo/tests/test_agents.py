"""The agents of this package: complete, small, documented, and as good as their records."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rlsdk
import rlsdk_zoo
from rlsdk.environments import make_vec_env
from rlsdk.evaluation import run_episodes
from rlsdk.registry import find
from rlsdk.registry.discovery import algorithms
from rlsdk_zoo import make
from rlsdk_zoo.installed import ZooAgent
from rlsdk_zoo.page import own_agents, page, unaccounted

PACKAGE = Path(__file__).parents[1]
MOST = 30_000_000
AGENTS = {agent.name: agent for agent in own_agents()}
CHEAP = "trpo/CartPole-v1"


ONLINE = {"a2c", "ars", "ddpg", "dqn", "maskable-ppo", "ppo", "qrdqn", "recurrent-ppo", "sac", "td3", "tqc", "trpo"}
FIRST = ONLINE | {"acer", "acktr", "bc", "gail", "td3-bc"}


def test_every_algorithm_has_an_agent() -> None:
    """All algorithms that existed when this package was made have agents. Later algorithms need no change of this package."""
    assert {agent.algorithm for agent in AGENTS.values()} >= FIRST
    assert {plugin.id for plugin in algorithms() if plugin.problem is None} >= FIRST
    assert set(AGENTS) == set(make.seeds())


def test_every_preset_has_an_agent_or_a_reason() -> None:
    assert unaccounted() == []


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_what_its_record_describes(name: str) -> None:
    record = AGENTS[name]
    agent = rlsdk_zoo.load(f"rlsdk-zoo:{name}")
    assert (agent.spec.id, agent.env_name, agent.seed) == (record.algorithm, record.environment, record.seed)
    assert make.has_preset(agent.config, make.recipe(name, record.seed).preset), "it has other settings than the preset"
    assert record.size == record.path.stat().st_size
    assert record.package == find(record.algorithm).distribution
    assert record.result.low <= record.result.mean <= record.result.high
    assert record.result.episodes == 100
    assert record.command == make.recipe(name, record.seed).line
    with zipfile.ZipFile(record.path) as archive:
        assert not [member for member in archive.namelist() if "training" in member or "replay" in member]


def test_the_readme_is_current() -> None:
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    assert page(text) == text, "write it again: python -m rlsdk_zoo.page plugins/rlsdk-zoo/README.md"


@pytest.mark.full
def test_the_wheel_holds_the_agents_and_is_small(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(line, cwd=PACKAGE, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"rlsdk_zoo/agents/{name}{suffix}" for name in AGENTS for suffix in (".rlsdk", ".toml")} <= names
    assert {"rlsdk_zoo/rlsdk.toml", "rlsdk_zoo/recipes.toml", "rlsdk_zoo/py.typed"} <= names
    assert wheel.stat().st_size < MOST


def reached(record: ZooAgent, episodes: int) -> list[float]:
    """The returns of the first episodes of the recorded evaluation."""
    env = make_vec_env(record.environment)
    try:
        return run_episodes(rlsdk_zoo.load(record.name), env, episodes, seed=record.result.seed).returns
    finally:
        env.close()


def run_card(name: str) -> dict[str, Any]:
    """The variables that the example in an agent's card leaves."""
    namespace: dict[str, Any] = {}
    exec(AGENTS[name].card().partition("```python\n")[2].partition("```")[0], namespace)
    return namespace


def test_the_example_of_a_card_runs() -> None:
    assert run_card(CHEAP)["mean"] == 500.0


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_agents_reach_what_their_records_have(name: str) -> None:
    """The mean return of 20 of the 100 episodes is within six standard errors of the record. On another processor
    sums may round differently, so that episodes may end differently."""
    record = AGENTS[name]
    returns = reached(record, 20)
    assert sum(returns) / 20 == pytest.approx(record.result.mean, abs=6 * record.result.std / 20**0.5 + 1e-6)
    assert isinstance(run_card(name)["mean"], float)


@pytest.mark.full
def test_an_agent_of_a_run_is_written_with_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the recipe runs, with fewer steps here. A second call uses the existing run."""
    started = list[list[str]]()
    run = subprocess.run

    def shortened(line: list[str], **kwargs: Any) -> Any:
        if line[1:3] != ["-m", "rlsdk"]:  # other parts of the library start programs too
            return run(line, **kwargs)
        started.append(line)
        return run([*line, "--steps", "64", "--eval-episodes", "1"], **kwargs)

    monkeypatch.setattr(make.subprocess, "run", shortened)
    runs, out = tmp_path / "runs", tmp_path / "agents"
    for _ in range(2):  # the second call finds the run
        assert make.main([CHEAP, "--runs", str(runs), "--out", str(out), "--episodes", "2"]) == 0
    ((_, _, _, *options, _, _),) = started
    assert " ".join(["rlsdk", *options]) == AGENTS[CHEAP].command
    text = (out / f"{CHEAP}.toml").read_text()
    assert [line for line in text.splitlines() if line.startswith("steps")] != [f"steps = {AGENTS[CHEAP].steps}"]
    assert rlsdk.load(out / f"{CHEAP}.rlsdk").env_name == "CartPole-v1"


@pytest.mark.full
def test_an_agent_that_learns_from_recordings_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the agent's record run, with fewer steps: get the expert, record it, learn from the recording."""
    run = subprocess.run

    def shortened(line: list[str], **kwargs: Any) -> Any:
        more = ["--steps", "8", "--eval-episodes", "1"] if line[1:4] == ["-m", "rlsdk", "run"] else []
        return run([*line, *more], **kwargs)

    monkeypatch.setattr(make.subprocess, "run", shortened)
    name, out = "bc/CartPole-v1", tmp_path / "agents"
    assert make.main([name, "--runs", str(tmp_path / "runs"), "--out", str(out), "--episodes", "2"]) == 0
    assert f'command = "{AGENTS[name].command}"' in (out / f"{name}.toml").read_text()
    assert rlsdk.load(out / f"{name}.rlsdk").env_name == "CartPole-v1"
    assert AGENTS[name].command.count(" && ") == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("trpo/Nothing-v0", "trpo has no preset for 'Nothing-v0'; it has presets for Acrobot-v1"),
        ("tpro/CartPole-v1", "did you mean 'trpo'?"),
        ("CartPole-v1", "no installed plugin offers 'CartPole-v1'"),
    ],
)
def test_unknown_recipes(name: str, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert make.main([name, "--runs", str(tmp_path), "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert (words in error, len(error.splitlines())) == (True, 1), error


def test_a_run_of_other_settings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "trpo-Pendulum-v1"
    run.mkdir()
    rlsdk.make("trpo", env="Pendulum-v1", seed=0, n_steps=32).save(run / "final.rlsdk")
    (run / "run.json").write_text('{"status": "finished"}')
    assert make.main(["trpo/Pendulum-v1", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 1
    assert "holds a run of other settings than the preset" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_gives_the_same_weights_again(tmp_path: Path) -> None:
    """Two trainings here give the same weights, and the result in the record."""
    one = make.recipe("ars/CartPole-v1", 0)
    first, second = (make.make(one, tmp_path / name, tmp_path / name, 20) for name in "ab")
    assert first.weights_sha256 == second.weights_sha256
    assert first.result.mean == AGENTS["ars/CartPole-v1"].result.mean
