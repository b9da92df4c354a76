"""`rlsdk run --dataset`: a run learns from recorded episodes, with an environment or without one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from rlsdk.environments import to_space
from rlsdk_datasets import RecordedEpisode, write_episodes
from tests.example_plugins import installed_examples

RUN = ("run", "cloning", "--seed", "0", "--out", "run")


@pytest.fixture(scope="module", autouse=True)
def cloning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the example plugins; `cloning` learns from a data set."""
    with installed_examples(tmp_path_factory.mktemp("installed")):
        yield


def demo(name: str | None, *, env: str = "CartPole-v1", file: str = "demo", reward: float = 1.0) -> Path:
    """Write a data set of random observations with the spaces of `env`. The file names `name` as its environment."""
    made = gymnasium.make(env)
    seen = torch.rand(4, 11, 4, generator=torch.Generator().manual_seed(0)) - 0.5
    episodes = [RecordedEpisode(rows, (rows[:-1, 2] > 0).long(), torch.full((10,), reward), True) for rows in seen]
    return write_episodes(file, episodes, to_space(made.observation_space), to_space(made.action_space), name)


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("run/run.json").read_text())
    return found


def test_a_run_without_an_environment_goes_on_where_it_stopped(cli: Any) -> None:
    demo(None)
    code, out, err = cli(*RUN, "--dataset", "demo", "--steps", "200")
    assert code == 0, err
    assert "training cloning on the data set demo: 200 updates" in out
    assert "200 updates in" in out
    assert "no evaluation without an environment" in out
    assert "env" not in record()
    assert record()["dataset"] == "demo"
    code, _, err = cli(*RUN[:2], "--out", "run", "--resume", "--steps", "250")
    assert (code, "on the command line --dataset FILE" in err) == (1, True)
    code, out, err = cli(*RUN[:2], "--out", "run", "--resume", "--steps", "250", "--dataset", "demo")
    assert code == 0, err
    assert record()["env_steps"] == 250
    code, out, err = cli(
        "run", "cloning", "--config", "run/config.toml", "--dataset", "demo", "--steps", "9", "--out", "b"
    )
    assert code == 0, err
    demo(None, file="other", reward=2.0)
    code, _, err = cli(
        "run", "cloning", "--config", "run/config.toml", "--dataset", "other", "--steps", "9", "--out", "c"
    )
    assert (code, "another data set than expected" in err) == (1, True)
    code, out, err = cli("plot", "run", "--out", "p.png", "--metric", "train/loss")
    assert code == 0, err


def test_several_environments_of_a_run_that_steps_none_are_refused(cli: Any) -> None:
    demo("CartPole-v1")
    code, _, err = cli(*RUN, "--dataset", "demo", "--steps", "20", "--n-envs", "4")
    assert (code, err.count("\n")) == (1, 1), err
    assert "--n-envs 4 has no effect: cloning learns from a data set and steps no environment; leave it out" in err
    assert not Path("run").exists()


@pytest.mark.parametrize("algorithm", ["cloning", "bc"])
def test_a_run_is_resumed_with_its_data_set_only(cli: Any, algorithm: str) -> None:
    demo(None)
    code, _, err = cli("run", algorithm, "--dataset", "demo", "--steps", "20", "--out", "run")
    assert code == 0, err
    demo(None, file="other", reward=2.0)
    again = ("run", algorithm, "--resume", "--out", "run", "--steps", "30", "--dataset")
    code, _, err = cli(*again, "other")
    assert (code, err.count("\n")) == (1, 1), err
    assert "the run learns from the data set 'demo'" in err
    assert "other.safetensors is another" in err
    assert "checkpoint" not in err
    Path("run/config.toml").unlink()
    assert cli(*again, "demo")[0] == 0


def test_the_environment_of_the_data_set_evaluates(cli: Any) -> None:
    demo("CartPole-v1")
    code, out, err = cli(*RUN, "--dataset", "demo.safetensors", "--steps", "100", "--eval-episodes", "2")
    assert code == 0, err
    assert record()["env"] == "CartPole-v1"
    assert "over 2 deterministic episodes" in out


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("package:Env-v0", "is not the id of a registered environment"),
        ("Missing-v0", "cannot be made here"),
        ("Pendulum-v1", "has other spaces"),
    ],
)
def test_an_environment_that_cannot_be_used_is_left_out(cli: Any, name: str, why: str) -> None:
    demo(name)
    code, out, err = cli(*RUN, "--dataset", "demo", "--steps", "20")
    assert code == 0, err
    assert why in out
    assert "env" not in record()


def test_several_seeds_without_an_environment(cli: Any) -> None:
    demo(None)
    seeds = ("run", "cloning", "--dataset", "demo", "--seeds", "2", "--executor", "in-process")
    code, out, err = cli(*seeds, "--steps", "20", "--out", "seeds")
    assert code == 0, err
    assert "cloning on demo: seeds 0 to 1" in out
    Path("seeds/summary.json").unlink()
    code, out, err = cli(*seeds[:2], "--resume", "--out", "seeds", "--steps", "30")
    assert code == 0, err
    assert json.loads(Path("seeds/seed-1/run.json").read_text())["env_steps"] == 30


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("run", "cloning"), "or --dataset FILE to learn from recorded episodes"),
        (("run", "cloning", "--dataset", "missing"), "there is no data set missing"),
        (("run", "cloning", "--dataset", "demo", "--eval-every", "5"), "--eval-every needs an environment"),
        (("run", "cloning", "--dataset", "demo", "--env", "Pendulum-v1"), "was recorded with observations"),
        (("run", "ppo", "--dataset", "demo", "--env", "CartPole-v1"), "ppo does not learn from one, leave it out"),
    ],
)
def test_what_is_wrong_is_one_line(cli: Any, options: tuple[str, ...], words: str) -> None:
    demo(None)
    code, _, err = cli(*options, "--steps", "10")
    assert code == 1
    assert words in err
    assert err.count("\n") == 1


def test_the_command_of_a_search_has_its_data_set(cli: Any) -> None:
    pytest.importorskip("optuna")
    demo("CartPole-v1")
    search = ("tune", "bc", "--env", "CartPole-v1", "--steps", "20", "--trials", "1", "--jobs", "1", "--json")
    for number, given in enumerate((("--set", "dataset=demo.safetensors"), ("--dataset", "demo.safetensors"))):
        code, out, err = cli(*search, "--eval-episodes", "1", "--out", f"found {number}", *given)
        assert code == 0, err
        command = shlex.split(json.loads(out)["command"])
        assert command[-2:] == ["--dataset", "demo.safetensors"]
        code, out, err = cli(*command[1:], "--eval-episodes", "1", "--out", f"run {number}")
        assert code == 0, err
    code, _, err = cli(*search, "--out", "none")
    assert (code, "give dataset=PATH, or --dataset FILE" in err) == (1, True)
    code, _, err = cli("run", "bc", "--config", "found 0/best.toml", "--steps", "20", "--out", "new")
    assert (code, "--dataset FILE" in err, "--resume" in err) == (1, True, False)


def test_a_search_takes_the_environment_of_its_data_set(cli: Any) -> None:
    demo("CartPole-v1")
    command = ("tune", "cloning", "--dataset", "demo", "--steps", "20", "--trials", "1", "--jobs", "1")
    code, out, err = cli(*command, "--eval-episodes", "1", "--out", "found")
    assert code == 0, err
    assert "cloning on CartPole-v1" in out
    demo(None, file="unnamed")
    code, _, err = cli(*command[:3], "unnamed", *command[4:], "--out", "other")
    assert (code, "needs an environment: add --env ID" in err) == (1, True)


SUITE = """
[suite]
episodes = 1
[[cells]]
algorithm = "bc"
env = "CartPole-v1"
steps = 20
[cells.settings]
dataset = "demo"
"""


def test_runs_of_a_suite_learn_from_one_data_set(cli: Any) -> None:
    Path("cloned.toml").write_text(SUITE)
    command = ("bench", "cloned.toml", "--jobs", "1", "--executor", "in-process", "--out", "bench")
    code, _, err = cli(*command, "--seeds", "1")
    assert (code, "bc on CartPole-v1: there is no data set demo" in err, Path("bench").exists()) == (1, True, False)
    whole = demo("CartPole-v1").read_bytes()
    code, _, err = cli(*command, "--seeds", "1")
    assert code == 0, err
    demo("CartPole-v1", reward=2.0)
    code, _, err = cli(*command, "--seeds", "2")
    assert (code, "bench holds other settings of bc on CartPole-v1 (dataset); choose" in err) == (1, True)
    Path("demo.safetensors").write_bytes(whole)
    assert cli(*command, "--seeds", "2")[0] == 0


def test_a_search_is_continued_with_its_data_set(cli: Any) -> None:
    pytest.importorskip("optuna")
    demo("CartPole-v1")
    search = ("tune", "bc", "--env", "CartPole-v1", "--steps", "20", "--jobs", "1", "--eval-episodes", "1", "--out")
    for number, given in enumerate((("--set", "dataset=demo.safetensors"), ("--dataset", "demo.safetensors"))):
        demo("CartPole-v1")
        code, _, err = cli(*search, f"found {number}", *given, "--trials", "1")
        assert code == 0, err
        demo("CartPole-v1", reward=2.0)
        code, _, err = cli(*search, f"found {number}", *given, "--trials", "2")
        assert (code, "dataset" in err) == (1, True), err
