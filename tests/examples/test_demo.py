"""The output of `make demo` at its end. `make demo` itself is run by people, as the first step in a new checkout."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples import show_run
from rlsdk.cli.main import app
from tests.docs.test_pages import quick
from tests.repository.test_docs import ROOT

RECIPE = (ROOT / "Makefile").read_text().partition("\ndemo: ")[2].partition("\n\n")[0]


def suggested() -> list[list[str]]:
    return [shlex.split(line.format(folder="demo"))[1:] for line in show_run.NEXT if line.startswith("rlsdk ")]


def test_evaluations_become_bars_from_the_worst_to_the_best() -> None:
    lines = show_run.table([500.0, 1000.0, 12_000.0], [-1500.0, -750.0, 0.0])
    assert lines == [
        "     500     -1500.0  |",
        "   1,000      -750.0  |" + "#" * 20,
        "  12,000         0.0  |" + "#" * 40,
    ]
    assert show_run.table([500.0], [1.0]) == ["     500         1.0  |"]


def test_a_run_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = {"algorithm": "tqc", "env": "Pendulum-v1", "eval_episodes": 10, "env_steps": 1000, "seconds": 7.9}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "metrics.csv").write_text("step,eval/mean_reward\n500,-1200\n800,\n1000,-150\n")
    (tmp_path / "agent.gif").touch()
    show_run.main(tmp_path)
    shown = capsys.readouterr().out
    assert "How tqc learned Pendulum-v1" in shown
    assert re.findall(r"^ +([\d,]+) +(-[\d.]+)  \|", shown, re.MULTILINE) == [("500", "-1200.0"), ("1,000", "-150.0")]
    assert "agent.gif" in shown
    assert "learning_curve.png" not in shown, "only files that are there are named"
    assert "rlsdk run tqc --resume" in shown


def test_the_demo_shows_curve_video_and_next_steps() -> None:
    for words in (
        "rlsdk run tqc",
        "rlsdk eval",
        "rlsdk record demo/final.rlsdk --out demo/agent.gif",
        "examples/show_run.py demo",
    ):
        assert words in RECIPE
    assert "SDL_VIDEODRIVER=dummy" in RECIPE, "it needs no screen"


@pytest.mark.slow
def test_the_demo_and_what_it_suggests_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the demo and the commands that it suggests run, with fewer steps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)
    (first,) = re.findall(r"rlsdk (run .*)", RECIPE)
    (video,) = re.findall(r"rlsdk (record .*)", RECIPE)
    shorter = {"8000": "300", "500": "150", "10000": "450", "20000": "256", "5000": "256"}
    for written in [shlex.split(first), shlex.split(video), *suggested()]:
        arguments = [shorter.get(each, each) for each in written]
        if arguments[0] == "run" and "--resume" not in arguments:
            arguments += quick(arguments[1])
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, f"{arguments}\n{done.output}\n{done.exception}"
    assert (tmp_path / "demo" / "agent.gif").stat().st_size > 1000
    monkeypatch.setattr(sys, "argv", ["show_run.py", "demo"])
    show_run.main(Path("demo"))
