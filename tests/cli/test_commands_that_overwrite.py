"""Commands that would replace or mix with existing files, options without effect, and commands that rlsdk prints."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from rlsdk import load
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault
from rlsdk.settings import parse_assignments
from rlsdk.settings.load import parse_value
from rlsdk_interchange.exporting import export
from rlsdk_lab.trials import Tuning
from tests.tables import in_one_test

SHORT = (
    "--env",
    "CartPole-v1",
    "--seed",
    "0",
    "--steps",
    "128",
    "--set",
    "n_steps=32",
    "--set",
    "batch_size=32",
    "--eval-every",
    "0",
)


@pytest.fixture
def folder(cli: Any, tmp_path: Path) -> Path:
    path = tmp_path / "a run"
    assert cli("run", "ppo", *SHORT, "--no-preset", "--eval-episodes", "1", "--out", str(path))[0] == 0
    return path


def test_a_new_run_does_not_mix_with_files_whose_record_is_lost(cli: Any, folder: Path) -> None:
    before = (folder / "metrics.csv").read_bytes()
    (folder / "run.json").unlink()
    code, _, error = cli("run", "ppo", *SHORT, "--no-preset", "--out", str(folder))
    assert (code, (folder / "metrics.csv").read_bytes()) == (1, before)
    assert "holds metrics.csv but no run.json" in error
    for name in ("metrics.csv", "metrics.jsonl", "final.rlsdk"):
        (folder / name).unlink()
    assert "rlsdk but no run.json" in cli("run", "ppo", *SHORT, "--no-preset", "--out", str(folder))[2]


def test_the_numbers_of_a_picture_replace_only_such_numbers(cli: Any, folder: Path) -> None:
    before = (folder / "metrics.csv").read_bytes()
    code, _, error = cli("plot", str(folder), "--out", str(folder / "metrics.png"))
    assert (code, (folder / "metrics.csv").read_bytes()) == (1, before)
    assert "metrics.csv, which holds something else" in error
    assert not (folder / "metrics.png").exists()
    for _ in range(2):
        assert cli("plot", str(folder), "--out", str(folder / "curve.png"))[0] == 0


def test_the_numbers_of_a_data_set_too(cli: Any, tmp_path: Path) -> None:
    data = tmp_path / "demo"
    cli("record-episodes", "--random", "--env", "CartPole-v1", "--episodes", "1", "--out", str(data))
    (tmp_path / "mine.csv").write_text("notes\n")
    assert cli("plot", str(data), "--out", str(tmp_path / "mine.png"))[0] == 1
    assert (tmp_path / "mine.csv").read_text() == "notes\n"
    for _ in range(2):
        assert cli("plot", str(data), "--out", str(tmp_path / "new.png"))[0] == 0


@pytest.mark.parametrize(
    ("out", "message"),
    [("final.rlsdk", "suffix of agents"), ("x.md", "suffix of agents"), ("notes.onnx", "another text")],
)
def test_an_export_replaces_no_agent_and_no_text(cli: Any, folder: Path, out: str, message: str) -> None:
    (folder / "notes.md").write_text("mine\n")
    before = (folder / "final.rlsdk").read_bytes()
    code, _, error = cli(
        "export", str(folder), "--format", "torch-export" if out == "x.md" else "onnx", "--out", str(folder / out)
    )
    assert (code, message in error) == (1, True)
    assert (folder / "final.rlsdk").read_bytes() == before
    assert (folder / "notes.md").read_text() == "mine\n"
    for _ in range(2):  # the second export replaces the card of the first
        assert cli("export", str(folder), "--format", "torch-export", "--out", str(folder / "again.pt2"))[0] == 0


def test_an_export_leaves_an_edited_card(cli: Any, folder: Path) -> None:
    line = ("export", str(folder), "--format", "torch-export", "--out", str(folder / "policy.pt2"))
    card, policy = folder / "policy.md", folder / "policy.pt2"
    assert "model card" in cli(*line)[1]
    for edited in (card.read_text() + "I trained it.\n", card.read_text().replace("Results", "My results", 1)):
        card.write_text(edited)
        policy.unlink()
        code, out, _ = cli(*line)
        assert (code, card.read_text(), policy.exists()) == (0, edited, True)
        assert "model card" not in out
    with pytest.warns(UserWarning, match="policy.md was edited and stays as it is; move it away"):
        export(load(folder / "final.rlsdk"), policy, "torch-export")
    card.unlink()
    assert "model card" in cli(*line)[1]


def test_a_wrong_search_does_not_claim_the_folder(cli: Any, tmp_path: Path) -> None:
    tune = (
        "tune",
        "ars",
        "--steps",
        "20",
        "--trials",
        "1",
        "--jobs",
        "1",
        "--eval-episodes",
        "1",
        "--out",
        str(tmp_path),
    )
    assert "gama" in cli(*tune, "--env", "CartPole-v1", "--set", "gama=1")[2]
    assert "CartPole-v9" in cli(*tune, "--env", "CartPole-v9")[2]
    assert cli(*tune, "--env", "CartPole-v1", "--set", "n_delta=1")[0] == 0


def test_a_pruner_without_pruning_is_refused(cli: Any) -> None:
    tune = ("tune", "ars", "--env", "CartPole-v1", "--steps", "20", "--no-prune", "--pruner", "halving")
    assert "--no-prune gives no trial up" in cli(*tune)[2]


def test_the_command_after_a_search_can_be_run(tmp_path: Path) -> None:
    own = Tuning(algorithm="ars", env="package:Env-v0", steps=9, trials=1, n_envs=1, out=tmp_path)
    # a name on the command line comes from the user, so `--trust` is not needed
    assert shlex.split(own.command(tmp_path / "best.toml"))[-2:] == ["--env", "package:Env-v0"]


def test_seeds_step_their_environments_as_asked(cli: Any, tmp_path: Path) -> None:
    many = ("--no-preset", "--seeds", "2", "--jobs", "2", "--executor", "in-process", "--eval-episodes", "1")
    code, _, error = cli("run", "ppo", *SHORT, *many, "--vectorization", "asyncc", "--out", str(tmp_path / "a"))
    assert (code, "did you mean 'async'" in error, (tmp_path / "a").exists()) == (1, True, False)
    cli("run", "ppo", *SHORT, *many, "--vectorization", "async", "--out", str(tmp_path / "b"))
    assert '"vectorization": "async"' in (tmp_path / "b" / "seed-0" / "run.json").read_text()


@pytest.mark.parametrize(
    ("assignment", "option"),
    [("n_envs=2", "--n-envs"), ("n_timesteps=1e3", "--steps"), ("total_timesteps=9", "--steps")],
)
def test_an_option_given_as_a_setting_is_named(cli: Any, assignment: str, option: str) -> None:
    assert f"pass it with {option}" in cli("run", "ppo", *SHORT, "--set", assignment)[2]


def test_a_file_of_the_zoo_is_a_preset(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "ppo.yml").write_text("CartPole-v1:\n  n_timesteps: !!float 1e2\n  policy: MlpPolicy\n")
    assert "--preset instead of --config" in cli("run", "ppo", *SHORT, "--config", str(tmp_path / "ppo.yml"))[2]


@in_one_test
@pytest.mark.parametrize(
    ("text", "value"), [(".99", 0.99), ("-.5", -0.5), ("1.", 1.0), (".5e-3", 5e-4), ("3.e2", 300.0)]
)
def test_numbers_may_begin_or_end_with_the_point(text: str, value: float) -> None:
    assert parse_assignments([f"gamma={text}"]) == {"gamma": value}


@in_one_test
@pytest.mark.parametrize("text", [".", "1..", "v1.", "1.2.3", ".e3", "lin_.5"])
def test_other_texts_with_points_stay_texts(text: str) -> None:
    assert parse_value(text) == text


def test_a_module_that_is_not_found_names_the_way() -> None:
    with pytest.raises(EnvironmentFault, match="add that folder to PYTHONPATH"):
        make_vec_env("no_such_module:My-v0")


def test_the_repeated_command_is_quoted(cli: Any, folder: Path, tmp_path: Path) -> None:
    cli("run", "ppo", *SHORT, "--no-preset", "--from", str(folder), "--out", str(tmp_path / "again"))
    lines = (tmp_path / "again" / "config.toml").read_text().splitlines()
    repeat = next(line for line in lines if line.startswith("# repeat: "))
    assert str(folder) in shlex.split(repeat)


def test_the_repeated_command_steps_environments_in_the_same_way(cli: Any, tmp_path: Path) -> None:
    """The environments of a vectorizer have other random numbers than single ones."""
    cli("run", "ppo", *SHORT, "--no-preset", "--vectorization", "native", "--out", str(tmp_path / "once"))
    lines = (tmp_path / "once" / "config.toml").read_text().splitlines()
    repeat = next(line for line in lines if line.startswith("# repeat: "))
    assert "--vectorization native" in repeat


CHOSEN = {
    "--collectors": "2",
    "--executor": "in-process",
    "--max-lag": "1",
    "--threads": "2",
    "--eval-every": "64",
    "--eval-episodes": "1",
    "--stop-at": "-10.0",
    "--checkpoint-every": "96",
    "--max-restores": "2",
    "--schedule-until": "500",
}
"""Each option that may change the result of a run -> a value other than its default."""


def test_the_repeated_command_has_the_options_that_change_the_result(cli: Any, tmp_path: Path) -> None:
    options = [word for pair in CHOSEN.items() for word in pair]
    once = tmp_path / "once"
    short = [*SHORT[:-2], "--no-preset", "--n-envs", "2", "--set", "n_steps=16"]
    code, _, error = cli("run", "ppo", *short, *options, "--exact-steps", "--out", str(once))
    assert code == 0, error
    lines = (once / "config.toml").read_text().splitlines()
    words = shlex.split(next(line for line in lines if line.startswith("# repeat: ")).removeprefix("# repeat: "))
    assert {name: words[words.index(name) + 1] for name in CHOSEN} == CHOSEN
    assert words[0] == "rlsdk"
    assert "--exact-steps" in words
    words[words.index("config.toml")] = str(once / "config.toml")
    code, _, error = cli(*words[1:], "--out", str(tmp_path / "again"))
    assert code == 0, error
    one, two = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("once", "again"))
    assert {name for name in one if one[name] != two[name]} <= {"seconds"}


def test_a_repeated_command_is_short_where_nothing_was_chosen(cli: Any, folder: Path) -> None:
    line = next(line for line in (folder / "config.toml").read_text().splitlines() if line.startswith("# repeat: "))
    assert not [name for name in (*CHOSEN, "--exact-steps") if name in line and not name.startswith(("--eval", "--ch"))]


@pytest.mark.full
def test_commands_do_not_share_a_folder(cli: Any, tmp_path: Path) -> None:
    suite = tmp_path / "mine.toml"
    suite.write_text('[suite]\ndescription = "d"\n[[cells]]\nalgorithm = "ars"\nenv = "CartPole-v1"\nsteps = 20\n')
    small = ("--set", "n_delta=1", "--eval-episodes", "1")
    ars = ("run", "ars", "--env", "CartPole-v1", "--steps", "20", "--no-preset", *small)
    commands = {
        "a run": ars,
        "runs": (*ars, "--seeds", "1", "--jobs", "1"),
        "the runs of": ("bench", str(suite), "--seeds", "1", "--jobs", "1"),
        "a search": ("tune", "ars", "--env", "CartPole-v1", "--steps", "20", "--trials", "1", "--jobs", "1", *small),
    }
    for held, command in commands.items():
        folder = tmp_path / held.replace(" ", "-")
        assert cli(*command, "--out", str(folder))[0] == 0
        before = sorted(folder.rglob("*"))
        for other, another in commands.items():
            code, _, error = cli(*another, "--out", str(folder))
            if other != held:
                assert (code, f"{folder} holds {held}" in error) == (1, True), (other, error)
            else:  # a bench and a search continue in their own folders; the others are refused
                assert code == (held in ("a run", "runs")), error
        assert sorted(folder.rglob("*")) == before


def test_an_executor_needs_work_to_share(cli: Any) -> None:
    assert "--executor belongs to --seeds or --collectors" in cli("run", "ppo", *SHORT, "--executor", "in-process")[2]


def test_where_the_time_went_is_printed_beside_a_result(cli: Any, tmp_path: Path) -> None:
    one = ("run", "ppo", *SHORT, "--no-preset", "--eval-episodes", "1", "--profile", "--out")
    for number, option in enumerate(("--json", "--quiet")):
        code, out, error = cli(*one, str(tmp_path / str(number)), option)
        assert (code, "where the time went" in out, "where the time went" in error) == (0, False, True)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (("curve-0.5", "--format", "svg"), "curve-0.5.svg"),
        (("curve-0.5",), "curve-0.5.png"),
        (("curve-0.5_seed1",), "curve-0.5_seed1.png"),
        (("curve.png", "--format", "svg"), "curve.svg"),
        (("curve.svg",), "curve.svg"),
    ],
)
def test_a_number_is_no_suffix_of_a_picture(cli: Any, folder: Path, given: tuple[str, ...], written: str) -> None:
    code, _, error = cli("plot", str(folder), "--out", str(folder / given[0]), *given[1:])
    assert code == 0, error
    assert (folder / written).exists()
