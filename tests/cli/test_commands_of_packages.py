"""Commands that packages add to `rlsdk`: they are listed without being imported, and a broken one harms no other."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from rlsdk.cli import main
from rlsdk.registry.loading import offered_commands
from rlsdk.registry.manifest import RESERVED, ManifestError, parse_manifest
from tests.throwaway import Environment, build_wheels, write_distribution

MANIFEST = """
id = "{id}"
title = "A command"
summary = "for tests"
sdk = "{sdk}"
[commands]
{name} = ["{package}.{module}:run", "Greet a user.", "{name}"]
"""
COMMAND = """
import typer
def run(loud: bool = False, name: str = "world") -> None:
    \"\"\"Greet a user.\"\"\"
    print(f"hello {name}" + "!" * loud)
"""


def source(
    folder: Path, identity: str, name: str, code: str = COMMAND, sdk: str = ">=0.1", module: str = "greeting"
) -> Path:
    """The sources of a plugin with one command."""
    package = f"acme_{identity}"
    manifest = MANIFEST.format(id=identity, sdk=sdk, name=name, package=package, module=module)
    root = write_distribution(folder, identity, manifest=manifest)
    (root / package / "greeting.py").write_text(code)
    return root


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A virtual environment with packages that add commands."""
    folder = tmp_path_factory.mktemp("commands")
    sources = [
        source(folder, "greeter", "greet"),
        source(folder, "one", "twice"),
        source(folder, "two", "twice"),
        source(folder, "failing", "fail", code="raise RuntimeError('no driver')"),
        source(folder, "absent", "vanish", module="nothere"),
        source(folder, "future", "later", sdk=">=99"),
    ]
    return Environment(folder / "env", build_wheels(sources, folder / "wheels"))


@pytest.mark.full
def test_the_list_imports_no_command(house: Environment) -> None:
    code = (
        "import contextlib, io\nfrom rlsdk.cli.main import app\nsys.argv = ['rlsdk', '--help']\nout = io.StringIO()\n"
        "with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):\n    app()\n"
        "loaded = [m for m in sys.modules if m.startswith(('acme', 'torch')) or m == 'rlsdk.cli.run']\n"
        "result = [out.getvalue(), loaded]"
    )
    text, loaded = house.json(code)
    assert loaded == []
    listed = [line.split()[0] for line in text.split("Commands:")[1].splitlines() if line.strip()]
    assert {"run", "greet", "twice", "fail", "vanish"} <= set(listed)
    assert "later" not in listed
    assert "Greet a user." in text


@pytest.mark.full
def test_a_command_of_a_package_runs(house: Environment) -> None:
    done = house.run("-m", "rlsdk", "greet", "--loud", "--name", "you")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello you!\n", "")
    done = house.run("-m", "rlsdk", "greet", "--help")
    assert "Example: rlsdk greet" in done.stdout
    done = house.run("-m", "rlsdk", "gret")
    assert "Did you mean 'greet'?" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "twice",
            "'twice' (commands) is offered by several plugins: acme-one/one, acme-two/two; uninstall all but one",
        ),
        ("fail", "acme-failing/failing 1.2.3 is broken: importing it raised RuntimeError: no driver"),
        ("vanish", "'absent' is broken: its manifest has commands = 'acme_absent.nothere:run', but there is no module"),
        ("later", "acme-future/future 1.2.3 cannot be used: it needs rlsdk >=99"),
    ],
)
def test_a_broken_command_is_one_line(house: Environment, name: str, words: str) -> None:
    done = house.run("-m", "rlsdk", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"run": ["x.y:z", "s", "e"]}, "which is the SDK's own"),
        ({"two words": ["x.y:z", "s", "e"]}, "accepted: letters"),
        ({"a": ["x.y:z", "s"]}, "an example without rlsdk"),
        ({"a": ["x.y", "s", "e"]}, "write module:name"),
        ({"a": "x.y:z"}, "an example without rlsdk"),
        ({"a": ["x.y:z", "s\n", "e"]}, "more than one line"),
        (["a"], "must be a table of strings"),
    ],
    ids=str,
)
def test_a_wrong_table_is_refused(table: object, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        parse_manifest({"id": "x", "title": "t", "summary": "s", "sdk": ">=0.1", "commands": table})


def test_a_command_of_a_package_that_is_absent_names_it(monkeypatch: pytest.MonkeyPatch, cli: object) -> None:
    monkeypatch.setattr(main, "PACKAGES", {"shine": "rlsdk-shine"})
    assert callable(cli)
    code, out, err = cli("shine")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "`rlsdk shine` is a command of rlsdk-shine, which is not installed" in err


def test_the_names_of_commands_of_the_core_are_reserved() -> None:
    assert set(RESERVED["commands"]) <= set(main.OWN)


def test_examples_of_commands_fit_their_options() -> None:
    group: Any = typer.main.get_command(main.app)
    examples = {name: example for name, (_, _, example) in main.OWN.items()}
    examples |= {name: offers[0][1][2] for name, offers in offered_commands().items()}
    assert len(examples) > 15
    for name, example in examples.items():
        words = shlex.split(example.partition(" > ")[0])
        assert words[0] == name
        command = group.get_command(typer.Context(group), name)
        command.make_context(name, words[1:])  # raises for an unknown option or a missing argument


def test_a_command_of_a_package_precedes_another_name_of_a_command() -> None:
    group: Any = typer.main.get_command(main.app)
    context = typer.Context(group)
    run, own = group.get_command(context, "run"), group.get_command(context, "list")
    group.commands = {"run": run}
    assert group.resolve_command(context, ["train", "ppo"]) == ("run", run, ["ppo"])
    group.commands = {"run": run, "train": own}
    assert group.resolve_command(context, ["train", "ppo"])[1] is own


def test_commands_of_pictures_fit_their_options() -> None:
    """The commands that the pictures of the pages show, which are made by hand."""
    from benchmarks.screenshots import COMMANDS

    group: Any = typer.main.get_command(main.app)
    for line in COMMANDS.values():
        program, name, *words = shlex.split(line)
        assert program == "rlsdk"
        group.get_command(typer.Context(group), name).make_context(name, words)
