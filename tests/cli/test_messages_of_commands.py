"""Errors of commands for common mistakes: one line with the fix, printed once, without warnings of other libraries."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from rlsdk.errors import EnvironmentFault, PluginError, SettingsError
from rlsdk.registry import find
from rlsdk.runtime.output import plain_warning, plain_warnings
from rlsdk.settings import load_settings
from rlsdk_lab.plotting import TITLE_WIDTH, environment_title
from rlsdk_lab.suite import load_suite
from rlsdk_parallel.executors import Processes

SHORT = ("--env", "CartPole-v1", "--steps", "64", "--n-envs", "1", "--set", "n_steps=32", "--eval-episodes", "1")


@pytest.mark.usefixtures("from_an_index")
@pytest.mark.parametrize("name", ["ppo", "trpo", "td3-bc"])
def test_the_package_of_one_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("RLSDK_PLUGINS", "tqc")
    with pytest.raises(PluginError, match=f"install it: pip install rlsdk-{name}$"):
        find(name)


def test_a_mistyped_algorithm() -> None:
    with pytest.raises(PluginError, match=r"offers 'tqcc'; did you mean 'tqc'\?$"):
        find("tqcc")


@pytest.mark.usefixtures("from_an_index")
def test_a_suite_whose_algorithm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSDK_PLUGINS", "tqc")
    with pytest.raises(
        SettingsError, match=r"'ars': no installed plugin offers 'ars' .*; install it: pip install rlsdk-ars$"
    ):
        load_suite("classic").only(("ars",))
    with pytest.raises(SettingsError, match="suite 'classic' has no algorithm 'tqq': no installed plugin"):
        load_suite("classic").only(("tqq",))


def test_a_suite_without_cells_of_an_algorithm() -> None:
    with pytest.raises(SettingsError, match=r"suite 'masked' has no algorithm 'tqc'; accepted: .*maskable-ppo"):
        load_suite("masked").only(("tqc",))


@pytest.mark.parametrize("name", ["Cartpole-v1", "CartPole-v9"])
def test_a_mistyped_environment_has_one_suggestion(name: str) -> None:
    from rlsdk.environments import make_vec_env

    with pytest.raises(EnvironmentFault) as caught:
        make_vec_env(name)
    text = str(caught.value)
    assert text.lower().count("did you mean") == 1
    assert text.endswith("; did you mean 'CartPole-v1'?")
    assert ".;" not in text


@pytest.mark.parametrize("command", ["eval", "inspect", "export", "record"])
def test_a_mistyped_path_is_shown_as_it_was_typed(cli: Any, command: str) -> None:
    assert cli(command, "nosuch")[::2] == (
        1,
        "error: there is no file or folder nosuch; name an agent file, or a directory that `rlsdk run` wrote\n",
    )


def test_a_settings_file_of_another_kind(tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    picture.write_bytes(b"\x89PNG")
    with pytest.raises(SettingsError, match="must end in"):
        load_settings(picture)
    with pytest.raises(SettingsError, match=r"nosuch\.toml cannot be read: No such file or directory$"):
        load_settings(Path("nosuch.toml"))
    (text := tmp_path / "run.toml").write_bytes(b"\x89PNG")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_settings(text)


def test_a_picture_that_cannot_be_written(cli: Any) -> None:
    pytest.importorskip("matplotlib")
    assert cli("run", "ppo", *SHORT, "--out", "run", "-q")[0] == 0
    Path("file").touch()
    code, _, err = cli("plot", "run", "-o", "file/curves.png")
    assert (code, err.startswith("error: cannot write the picture file/curves.png: ")) == (1, True)
    assert err.count("\n") == 1


def test_exporting_repeats_no_warning_of_torch(cli: Any) -> None:
    """torch warns about devices when weights share a storage; the command hides this warning."""
    assert (
        cli("run", "tqc", "--env", "Pendulum-v1", "--steps", "32", "--eval-episodes", "1", "--out", "run", "-q")[0] == 0
    )
    code, _, err = cli("export", "run", "--format", "torch-export")
    assert (code, err) == (0, "")


def test_model_cards_of_the_best_and_of_the_final_agent_have_their_results(cli: Any) -> None:
    options = ("--steps", "200", "--eval-every", "100", "--eval-episodes", "2", "--out", "run", "-q")
    assert cli("run", "ars", "--env", "CartPole-v1", *options)[0] == 0
    assert cli("export", "run", "--format", "torch-export")[0] == 0
    assert ", the best evaluation during training." in Path("run/best.md").read_text()
    assert cli("export", "run/final.rlsdk", "--format", "torch-export")[0] == 0
    assert " over 2 deterministic episodes." in Path("run/final.md").read_text()


def test_titles_of_environments_with_arguments_fit() -> None:
    title = environment_title(
        "CartPole-v1?sutton_barto_reward=true&wrapper=TimeAwareObservation&wrapper=a_module.of:Mine"
    )
    first, *rest = title.splitlines()
    assert (first, rest[0]) == ("CartPole-v1", "?sutton_barto_reward=true")
    assert max(map(len, title.splitlines())) <= TITLE_WIDTH
    assert environment_title("Pendulum-v1") == "Pendulum-v1"


def _warn(number: int) -> int:
    warnings.warn(f"too large: {number}", UserWarning, stacklevel=1)
    return number


def test_warnings_of_processes_are_plain_too(capfd: pytest.CaptureFixture[str]) -> None:
    """A warning in a worker process is one plain line, without the file, line number and source code."""
    with plain_warnings():
        executor = Processes(1)
        try:
            assert executor.map(_warn, [3]) == [3]
        finally:
            executor.close()
    assert capfd.readouterr().err == "warning: too large: 3\n"


def test_warnings_of_gymnasium_have_no_codes_of_colors(recwarn: pytest.WarningsRecorder) -> None:
    gymnasium.make("Pendulum")
    (warning,) = [each for each in recwarn if "unversioned" in str(each.message)]
    text = plain_warning(warning.message, warning.category, "", 0)
    assert text.startswith("warning: Using the latest versioned environment `Pendulum-v1` instead")
    assert "\x1b" not in text


def test_the_command_of_a_search_has_its_environments(cli: Any) -> None:
    pytest.importorskip("optuna")
    line = ("tune", "trpo", "--env", "CartPole-v1", "--steps", "64", "--n-envs", "3", "--trials", "1", "--jobs", "1")
    code, out, err = cli(*line, "--eval-episodes", "1", "--out", "tuned")
    assert code == 0, err
    assert "--config tuned/best.toml --steps 64 --n-envs 3" in out
