"""`rlsdk run --steps 0`: an untrained agent in a run folder, which `--resume` trains as if it had begun so."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import rlsdk
from rlsdk.callbacks import CheckpointCallback
from rlsdk.runs import read_metric
from rlsdk_testing.subject import differing, flat_state

ENVS = {"ppo": "CartPole-v1", "dqn": "CartPole-v1", "sac": "Pendulum-v1", "ars": "CartPole-v1"}
EACH = ["ppo", *(pytest.param(name, marks=pytest.mark.full) for name in ENVS if name != "ppo")]
SHORT = ("--seed", "3", "--eval-episodes", "2")
SIZES = {"ppo": ("n_steps=32",), "dqn": ("learning_starts=16",), "sac": ("learning_starts=16",), "ars": ("n_delta=2",)}


def arguments(algorithm: str, steps: int, *more: str) -> list[str]:
    """The command of a new run without its preset."""
    sizes = [word for size in SIZES[algorithm] for word in ("--set", size)]
    return ["run", algorithm, "--env", ENVS[algorithm], "--no-preset", "--steps", str(steps), *SHORT, *sizes, *more]


@pytest.mark.parametrize("algorithm", EACH)
def test_the_folder_holds_an_untrained_agent_and_its_evaluation(cli: Any, algorithm: str) -> None:
    code, out, err = cli(*arguments(algorithm, 0, "--out", "run"))
    assert code == 0, err
    record, run = json.loads(Path("run/run.json").read_text()), Path("run")
    assert (record["status"], record["steps"], record["env_steps"]) == ("finished", 0, 0)
    assert record["final_evaluation"]["episodes"] == 2
    assert "0 steps in 0 s; return" in out
    assert "(final.rlsdk, config.toml, ...)" in out  # nothing was logged
    assert {path.name for path in run.iterdir()} == {
        "config.toml",
        "run.json",
        "checkpoints",
        "final.rlsdk",
    }
    untrained = rlsdk.load(run / "final")
    assert untrained.num_timesteps == 0
    code, out, err = cli("eval", "run", "--episodes", "1")
    assert code == 0, err
    again = cli(
        "run", algorithm, "--config", "run/config.toml", "--steps", "0", "--eval-episodes", "2", "--out", "again"
    )
    assert again[0] == 0, again[2]
    assert differing(flat_state(untrained), flat_state(rlsdk.load("again/final"))) == []


@pytest.mark.parametrize("algorithm", EACH)
def test_a_run_that_continues_at_step_0_equals_one_from_the_start(cli: Any, algorithm: str) -> None:
    every = ("--eval-every", "64", "--checkpoint-every", "64")
    assert cli(*arguments(algorithm, 0, *every, "--out", "late"))[0] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, _, err = cli("run", algorithm, "--resume", "--out", "late", "--steps", "128")
    assert code == 0, err
    assert "earlier_1" not in err
    assert not list(Path("late/checkpoints").glob("earlier*"))
    assert cli(*arguments(algorithm, 128, *every, "--out", "once"))[0] == 0
    assert differing(*(flat_state(rlsdk.load(f"{name}/final")) for name in ("late", "once"))) == []
    assert Path("late/best.rlsdk").exists()
    scores = [read_metric(Path(name, "metrics.csv"), "eval/mean_reward") for name in ("late", "once")]
    assert scores[0][0]
    assert scores[0] == scores[1]


def test_0_is_not_taken_for_a_number_that_was_not_given(cli: Any) -> None:
    """The preset has a number of steps, too."""
    code, _, err = cli("run", "ppo", "--env", "CartPole-v1", "--steps", "0", "--eval-episodes", "1", "--out", "run")
    assert code == 0, err
    assert json.loads(Path("run/run.json").read_text())["steps"] == 0


@pytest.mark.parametrize("left", [0, 1])
def test_a_picture_is_drawn_from_two_points_on(cli: Any, left: int) -> None:
    pytest.importorskip("matplotlib")
    code, _, err = cli(*arguments("ppo", 32 * (1 + left), "--eval-every", "32", "--out", "run"))
    assert code == 0, err
    assert Path("run/learning_curve.png").exists() == bool(left)


def test_learn_of_no_steps_changes_nothing() -> None:
    model = rlsdk.make("ppo", env="CartPole-v1", seed=0)
    before = flat_state(model)
    assert model.learn(0).num_timesteps == 0
    assert differing(before, flat_state(model)) == []


def test_a_checkpoint_before_training_belongs_to_the_training(tmp_path: Path) -> None:
    """One of another seed, or of a training that has learned, moves aside."""
    small: Any = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
    model, checkpoints = rlsdk.make("ppo", env="CartPole-v1", seed=0, **small), CheckpointCallback(16, tmp_path)
    checkpoints.save(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(16, callback=checkpoints)
    assert {path.name for path in tmp_path.glob("*.rlsdk")} == {"step_000000000.rlsdk", "step_000000016.rlsdk"}
    other = rlsdk.make("ppo", env="CartPole-v1", seed=1, **small)
    with pytest.warns(UserWarning, match="moved to .*earlier_1"):
        other.learn(16, callback=CheckpointCallback(16, tmp_path))
    assert len(list((tmp_path / "earlier_1").glob("*.rlsdk"))) == 2


@pytest.mark.full
def test_seeds_of_no_steps(cli: Any) -> None:
    code, _, err = cli(*arguments("ppo", 0, "--seeds", "2", "--jobs", "1", "--out", "seeds"))
    assert code == 0, err
    summary = json.loads(Path("seeds/summary.json").read_text())
    assert [result["error"] for result in summary["seeds"].values()] == [None, None]
