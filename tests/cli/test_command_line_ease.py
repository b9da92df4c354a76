"""What users expect of a command line: folders, a version, JSON, quick answers, progress of several runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import rlsdk
from rlsdk.cli import main
from rlsdk.runs.directory import find_agent
from rlsdk_lab.many_runs import watching

SHORT = ("--env", "CartPole-v1", "--steps", "64", "--n-envs", "1", "--set", "n_steps=32", "--eval-episodes", "1")


def test_the_version(cli: Any) -> None:
    assert cli("--version")[:2] == (0, f"rlsdk {rlsdk.__version__}\n")


@pytest.mark.full
def test_an_unknown_id_is_refused_before_torch_is_imported() -> None:
    code = (
        "import sys; sys.argv = ['rlsdk', 'run', 'nosuch', '--env', 'CartPole-v1', '--seeds', '3']\n"
        "from rlsdk.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "1 False"
    assert done.stderr.count("nosuch'") == 1
    assert "accepted: a2c, " in done.stderr
    assert not Path("runs").exists()


def test_folders_stand_for_their_agents(cli: Any, tmp_path: Path) -> None:
    code, _, err = cli("run", "ppo", *SHORT, "--out", "run")
    assert code == 0, err
    assert find_agent(Path("run")) == Path("run/best.rlsdk")
    code, out, _ = cli("inspect", "run", "--json")
    assert (code, json.loads(out)["algorithm"]) == (0, "ppo")
    code, out, err = cli("eval", "run/", "--episodes", "1")
    assert code == 0, err
    assert "agent: run/best.rlsdk" in out
    Path("run/best.rlsdk").unlink()
    assert find_agent(Path("run")) == Path("run/final.rlsdk")
    Path("run/final.rlsdk").unlink()
    assert find_agent(Path("run")).parent == Path("run/checkpoints")
    code, _, err = cli("eval", ".")
    assert (code, "holds no agent" in err) == (1, True)
    assert json.loads(Path("run/run.json").read_text())["system"]["rlsdk-ppo"] == rlsdk.registry.find("ppo").version


def test_the_folder_of_a_sweep_names_its_runs(tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0/final.rlsdk").touch()
    with pytest.raises(rlsdk.errors.SettingsError, match="seed-0"):
        find_agent(tmp_path)


def test_a_file_beside_a_folder_of_its_name_is_meant(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent.rlsdk").touch()
    assert find_agent(tmp_path / "agent") == tmp_path / "agent.rlsdk"


def test_a_run_beside_a_file_of_its_name_is_meant(tmp_path: Path) -> None:
    run, beside = tmp_path / "b", tmp_path / "b.rlsdk"
    run.mkdir()
    for file in (beside, tmp_path / "b.zip", run / "final.rlsdk"):
        file.touch()
    assert find_agent(run) == run / "final.rlsdk"
    assert find_agent(beside) == beside
    (run / "final.rlsdk").unlink()
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "step_000000008.rlsdk").touch()
    assert find_agent(run) == run / "checkpoints" / "step_000000008.rlsdk"


def test_an_algorithm_as_json(cli: Any) -> None:
    code, out, _ = cli("info", "ppo", "--json")
    table = json.loads(out)
    assert (code, table["id"], "CartPole-v1" in table["presets"]) == (0, "ppo", True)
    assert {"learning_rate", "n_steps"} <= {setting["name"] for setting in table["settings"]}


def test_scores_of_a_suite_as_json(cli: Any) -> None:
    Path("small.toml").write_text(
        '[[cells]]\nalgorithm = "ppo"\nenv = "CartPole-v1"\nsteps = 64\nsettings = {n_steps = 32}\n'
    )
    code, out, err = cli("bench", "small.toml", "--seeds", "1", "--jobs", "1", "--json")
    assert code == 0, err
    (score,) = json.loads(out)
    assert (score["algorithm"], score["seed"], score["steps"]) == ("ppo", 0, 256)


def test_runs_elsewhere_are_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.txt"
    line = "   400/8,000 steps  return     12.50      900 steps/s  0:08 left\n"
    log.write_text("training\n" + line)
    with watching({"seed 0": tmp_path, "seed 1": tmp_path / "none"}, seconds=0.01):
        log.write_text("training\n" + line + line.replace("400/", "500/") + "a warning\n")
        for _ in range(500):
            if "500/8,000" in (found := capsys.readouterr().err):
                break
            time.sleep(0.01)
    assert found == "seed 0: 500/8,000 steps return 12.50 900 steps/s 0:08 left\n"
    assert "500" not in capsys.readouterr().err


@pytest.mark.full
def test_quiet_commands_print_nothing(cli: Any) -> None:
    small = 'algorithm = "ppo"\nenv = "CartPole-v1"\nsteps = 64\nsettings = {n_steps = 32}\n'
    Path("small.toml").write_text(f"[[cells]]\n{small}")
    assert cli("run", "ppo", *SHORT, "--out", "run", "--quiet") == (0, "", "")
    assert cli("run", "ppo", *SHORT, "--out", "runs", "--seeds", "2", "-q") == (0, "", "")
    code, out, err = cli("bench", "small.toml", "--seeds", "1", "-q", "--logger", "tensorboard")
    assert (code, err) == (0, ""), err
    assert out.startswith("report: ")
    assert list(Path("bench").rglob("events.out.tfevents*"))
    code, out, err = cli("run", "ppo", *SHORT, "--set", "gamma=7", "-q")
    assert (code, out, "gamma = 7.0 is outside" in err) == (1, "", True)


def test_a_warning_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line prints a warning without the file, line and source code that Python adds."""
    before = warnings.formatwarning
    monkeypatch.setattr(
        main, "app", lambda **_: print(warnings.formatwarning("too large", UserWarning, "a.py", 1), end="")
    )
    main.main()
    assert capsys.readouterr().out == "warning: too large\n"
    assert warnings.formatwarning is before


@pytest.mark.full
def test_results_of_commands_as_json(cli: Any) -> None:
    code, out, err = cli("run", "ppo", *SHORT, "--seed", "3", "--out", "one", "--json")
    assert code == 0, err
    (result,) = json.loads(out)
    assert (result["seed"], result["folder"], result["error"]) == (3, "one", None)
    assert result["mean"] == json.loads(Path("one/run.json").read_text())["final_evaluation"]["mean"]
    code, out, err = cli("run", "ppo", *SHORT, "--seeds", "2", "--executor", "in-process", "--out", "two", "--json")
    assert code == 0, err
    assert [(each["seed"], each["folder"]) for each in json.loads(out)] == [(0, "two/seed-0"), (1, "two/seed-1")]
    code, out, _ = cli("doctor", "--json")
    found = json.loads(out)
    assert found["versions"]["rlsdk"] == rlsdk.__version__
    assert {each["id"] for each in found["plugins"]} >= {"rlsdk-ppo/ppo", "rlsdk-tqc/tqc"}
    assert code == any(each["problem"] or each["effects"] for each in found["plugins"])


def test_a_search_as_json(cli: Any) -> None:
    pytest.importorskip("optuna")
    line = ("tune", "ppo", "--env", "CartPole-v1", "--steps", "64", "--trials", "1", "--eval-episodes", "1")
    code, out, err = cli(*line, "--executor", "in-process", "--out", "tuned", "--json")
    assert code == 0, err
    best = json.loads(out)
    assert (best["file"], best["trials"]) == ("tuned/best.toml", 1)
    assert best["command"].startswith("rlsdk run ppo --config tuned/best.toml --steps 64")


def test_an_unknown_executor_is_refused_for_a_single_run_too(cli: Any) -> None:
    """An unknown executor is refused, also without --seeds and --collectors; it was ignored before."""
    code, _, err = cli("run", "ppo", *SHORT, "--executor", "proceses")
    assert (code, err) == (1, "error: unknown executor 'proceses'; did you mean 'processes'?\n")
    assert not Path("runs").exists()


def test_the_list_of_commands_has_whole_sentences(cli: Any) -> None:
    for line in (["--help"], ["zoo", "--help"]):
        code, out, _ = cli(*line)
        assert code == 0
        commands = out.partition("Commands:\n")[2].splitlines()
        assert commands
        assert all(row.endswith(".") and not row.endswith("...") for row in commands), commands


def test_the_zoo_says_why_it_shows_nothing(cli: Any) -> None:
    code, out, err = cli("zoo", "list", "nothing-like-it")
    assert (code, out) == (0, "")
    assert "trained agents" in err


def test_settings_of_a_file_fit_a_screen(cli: Any) -> None:
    rlsdk.make("tqc", env="Pendulum-v1", buffer_size=100).save("agent")
    code, out, _ = cli("inspect", "agent.rlsdk")
    assert code == 0
    settings = out.partition("settings:")[2]
    assert max(map(len, settings.splitlines())) <= 120
    assert json.loads(settings) == json.loads(cli("inspect", "agent.rlsdk", "--json")[1])["config"]


def test_sizes_of_networks_are_those_of_the_algorithm(cli: Any) -> None:
    for algorithm, sizes in (("td3", "[400, 300]"), ("td3-bc", "[256, 256]")):
        assert f"(none = {sizes} for pi and qf)" in cli("info", algorithm)[1]
        assert f"(none = {sizes} for pi and qf)" in cli("config", algorithm)[1]


def test_help_shows_no_types_of_python_and_no_ranges(cli: Any) -> None:
    for command in ("eval", "plot", "bench", "record-episodes", "new", "export", "ui"):
        code, out, _ = cli(command, "--help")
        assert code == 0
        assert not re.search(r"list\[|range>|<str>|<Path>|<=|\[\]|\(\)", out), out
    assert re.search(r"--episodes <int>\s+Number of episodes\.\s+\[default: 20\]", cli("eval", "--help")[1])


def test_descriptions_break_between_words(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert cli("run", "ppo", *SHORT, "--out", "run")[0] == 0
    for command in (("info", "ppo"), ("inspect", "run"), ("list",)):
        lines = cli(*command)[1].splitlines()
        assert [line for line in lines if len(line) > 60 and " " in line[30:]] == []
