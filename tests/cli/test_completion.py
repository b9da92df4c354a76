"""The completions that the tab key offers in a shell."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rlsdk import executors
from rlsdk.cli import completions, main
from rlsdk.runs import runner

ASK = (
    "import sys; from rlsdk.cli.main import main; sys.argv = ['rlsdk']\n"
    "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"
)


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    def ask(line: str) -> list[str]:
        for name, value in _environment(line).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            main.app(prog_name="rlsdk")
        return capsys.readouterr().out.split()

    return ask


def _environment(line: str) -> dict[str, str]:
    words = line.split(" ")
    return {"_RLSDK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rlsdk ru", ["run"]),
        ("rlsdk run tr", ["trpo"]),
        ("rlsdk tune maskable", ["maskable-ppo"]),
        ("rlsdk import trp", ["trpo"]),
        ("rlsdk run trpo --env CartP", ["CartPole-v1"]),
        ("rlsdk run trpo --env Walker2d-v5 --preset CartP", ["CartPole-v1", "CartPole-v1-fast"]),
        ("rlsdk config gail --preset HalfCheetah-v5-", ["HalfCheetah-v5-constant-reward"]),
        ("rlsdk run --env Acro", ["Acrobot-v1"]),
        ("rlsdk run nosuch --env C", []),
        ("rlsdk run ppo --logger ", ["console", "tensorboard", "mlflow", "trackio", "wandb"]),
        ("rlsdk bench classic --executor ", ["in-process", "processes", "ray"]),
        ("rlsdk bench cl", ["classic"]),
        ("rlsdk zoo get tqc/Pend", ["tqc/Pendulum-v1"]),
    ],
)
def test_names_are_completed(completed: object, line: str, expected: list[str]) -> None:
    assert callable(completed)
    assert completed(line) == expected


@pytest.mark.full
def test_nothing_slow_is_imported() -> None:
    environment = {**os.environ, **_environment("rlsdk run ppo --logger tens")}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.split(), done.stderr) == (["tensorboard"], "")


def test_the_names_of_rlsdk_itself_are_those_it_has() -> None:
    assert set(completions.SINKS) == set(runner.BUILT_IN)
    assert set(completions.EXECUTORS) == set(executors.EXECUTORS)
