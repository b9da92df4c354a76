"""A frozen plugin, written for a minor version of the SDK, works with this version (docs/decisions/0029 and 0061)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

import rlsdk
from rlsdk.errors import ContractViolation, PluginError
from rlsdk.registry import discovery, plugins
from rlsdk.registry.discovery import misfit
from rlsdk_testing import clauses, verify
from tests.repository.test_public_imports import not_public
from tests.sdk_versions.frozen import (
    AGENTS,
    EXPECTED,
    FOLDER,
    SUMS,
    Frozen,
    answers,
    copied,
    frozen,
    minors,
    on_the_path,
    range_of,
    sums,
)
from tests.throwaway import Environment, build_wheels

ROOT = Path(__file__).parents[2]
HERE = Version(rlsdk.__version__)
NEXT = f"{HERE.major}.{HERE.minor + 1}.0"
FAST = ("plugin.", "algorithm.")
"""Prefixes of the clauses that the fast suite checks; slow tests check the others."""
FAULTS = {
    ("recall", "settings.live-take-over"): "train_freq",
}
"""Known faults of frozen plugins, which the kit must find: (plugin id, clause) -> the setting that it does not read."""
NO_LONGER_PUBLIC = ["from rlsdk.settings import glossary"]
"""What frozen plugins import that left the public API before the first release, but still works (decision 0061): the texts of
shared settings, which a field now has by its name."""
PLUGINS = {f"{plugin.id} of {minor}": (minor, plugin) for minor in minors() for plugin in frozen(minor)}
FILES = {
    f"{path.stem} of {minor}": (minor, path)
    for minor in minors()
    for path in sorted((FOLDER / minor / AGENTS).iterdir())
}


def widened(plugin: Frozen, minor: str, folder: Path, sdk: str) -> Path:
    """Copy the sources and widen their range to include `sdk`; an author changes only this for the next minor version."""
    upper = Version(sdk)
    wider = f">={minor},<{upper.major}.{upper.minor + 1}"
    changes = {name: {range_of(minor): wider} for name in ("rlsdk.toml", "pyproject.toml")}
    return copied(plugin, folder, None if misfit(range_of(minor), sdk, "") is None else changes)


@pytest.fixture
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Frozen]:
    """A frozen plugin whose range includes this SDK, importable and listed as an installed plugin."""
    minor, plugin = request.param
    with on_the_path(widened(plugin, minor, tmp_path, rlsdk.__version__), tmp_path / "site") as found:
        yield found


with_each_plugin = pytest.mark.parametrize("installed", PLUGINS.values(), ids=PLUGINS, indirect=True)


@pytest.mark.parametrize("minor", minors())
def test_frozen_plugins_are_not_edited(minor: str) -> None:
    """If a frozen plugin stops working, correct the SDK and not the plugin."""
    assert sums(minor) == json.loads((FOLDER / minor / SUMS).read_text())


def test_this_minor_version_and_the_one_before_are_frozen() -> None:
    wanted = [f"{HERE.major}.{number}" for number in (HERE.minor - 1, HERE.minor) if number > 0]
    assert set(wanted) <= set(minors()), "write plugins for it: tests/sdk_versions/frozen.py"


@with_each_plugin
def test_they_train_and_come_back_from_a_file(installed: Frozen, tmp_path: Path) -> None:
    (listed,) = [plugin for plugin in rlsdk.algorithms() if plugin.id == installed.id]
    assert (listed.problem, listed.version) == (None, installed.version)
    agent = rlsdk.make(installed.id, env="CartPole-v1", seed=3).learn(300)
    assert agent.num_timesteps >= 300
    agent.save(tmp_path / "agent")
    again = rlsdk.load(tmp_path / "agent", env="CartPole-v1")
    assert answers(again) == answers(agent)
    assert again.learn(50, reset_num_timesteps=False).num_timesteps > agent.num_timesteps


@with_each_plugin
@pytest.mark.parametrize("clause", [str(clause) for clause in clauses() if str(clause).startswith(FAST)])
def test_a_fast_part_of_the_kit(installed: Frozen, clause: str) -> None:
    verify(installed.id, clause)


@with_each_plugin
@pytest.mark.slow
@pytest.mark.parametrize("clause", [str(clause) for clause in clauses() if not str(clause).startswith(FAST)])
def test_the_rest_of_the_kit(installed: Frozen, clause: str) -> None:
    if (installed.id, clause) in FAULTS:
        with pytest.raises(ContractViolation, match=FAULTS[installed.id, clause]):
            verify(installed.id, clause)
    else:
        verify(installed.id, clause)


@pytest.mark.parametrize(("minor", "path"), FILES.values(), ids=FILES)
def test_files_made_then_are_read_now(minor: str, path: Path, tmp_path: Path) -> None:
    """The agent in an old file acts as before and continues training."""
    identity = path.name.partition("-")[0]
    (plugin,) = [plugin for plugin in frozen(minor) if plugin.id == identity]
    with on_the_path(widened(plugin, minor, tmp_path, rlsdk.__version__), tmp_path / "site"):
        agent = rlsdk.load(path, env="CartPole-v1")
        assert answers(agent) == json.loads((FOLDER / minor / EXPECTED).read_text())[path.name]
        steps = agent.num_timesteps
        assert agent.learn(50, reset_num_timesteps=False).num_timesteps > steps >= 600


@with_each_plugin
def test_they_use_public_names(installed: Frozen) -> None:
    """The names that a frozen plugin imports are in the snapshot of the API, so removing one makes a test fail."""
    sources = list(installed.package.rglob("*.py"))
    assert len(sources) > 3
    assert [problem for path in sources for problem in not_public(path.read_text())] == NO_LONGER_PUBLIC


@pytest.mark.parametrize(("minor", "plugin"), PLUGINS.values(), ids=PLUGINS)
def test_the_next_sdk_refuses_them_until_their_range_reaches_it(
    minor: str, plugin: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "sdk_version", lambda: NEXT)
    with (
        on_the_path(copied(plugin, tmp_path / "then"), tmp_path / "then" / "site"),
        pytest.raises(
            PluginError, match=f"needs rlsdk {range_of(minor)}, installed is {NEXT}; .*pip install --upgrade"
        ),
    ):
        rlsdk.make(plugin.id, env="CartPole-v1")
    with on_the_path(widened(plugin, minor, tmp_path / "now", NEXT), tmp_path / "now" / "site"):
        assert rlsdk.make(plugin.id, env="CartPole-v1").learn(100).num_timesteps >= 100
    monkeypatch.undo()
    plugins(rescan=True)


@pytest.mark.usefixtures("from_an_index")
@pytest.mark.parametrize(
    ("claimed", "fix"),
    [
        (f">={NEXT[:-2]}", f'pip install "rlsdk>={NEXT[:-2]}"'),
        ("<0.1", 'pip install --upgrade acme-recall, or an older SDK: pip install "rlsdk<0.1"'),
    ],
)
def test_plugins_for_other_versions_of_the_sdk(claimed: str, fix: str, tmp_path: Path) -> None:
    (plugin,) = [plugin for plugin in frozen("0.1") if plugin.id == "recall"]
    source = copied(plugin, tmp_path, {"rlsdk.toml": {range_of("0.1"): claimed}})
    with on_the_path(source, tmp_path / "site"):
        with pytest.raises(PluginError) as caught:
            rlsdk.make("recall", env="CartPole-v1")
        wanted = (
            f"acme-recall/recall 1.1.0 cannot be used: it needs rlsdk {claimed}, installed is {rlsdk.__version__}; "
        )
        assert str(caught.value).startswith(wanted)
        assert str(caught.value).endswith(fix)


def sdk_as(version: str, folder: Path) -> Path:
    """Copy the sources of this SDK with another version number and return their folder."""
    target = folder / f"sdk-{version}"
    shutil.copytree(ROOT / "rlsdk", target / "rlsdk", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    start = target / "rlsdk" / "__init__.py"
    text = start.read_text()
    assert f'__version__ = "{rlsdk.__version__}"' in text
    start.write_text(text.replace(f'"{rlsdk.__version__}"', f'"{version}"'))
    return target


@pytest.mark.slow
@pytest.mark.parametrize("version", [rlsdk.__version__, NEXT])
@pytest.mark.parametrize("minor", minors())
def test_wheels_of_then_with_the_sdk_of_now(minor: str, version: str, tmp_path: Path) -> None:
    """SDK and frozen plugins are installed from wheels and used through commands."""
    fits = misfit(range_of(minor), version, "") is None
    released = [copied(plugin, tmp_path / "released") for plugin in frozen(minor)]
    wheels = build_wheels([sdk_as(version, tmp_path), *released], tmp_path / "wheels")
    environment = Environment(tmp_path / "env", wheels)
    assert environment.json("import rlsdk; result = rlsdk.__version__") == version
    for plugin in frozen(minor):
        done = environment.run("-m", "rlsdk", "info", plugin.id)
        assert (done.returncode == 0) == fits, done.stderr
        assert fits or f"installed is {version}" in done.stderr
    if not fits:
        sources = [widened(plugin, minor, tmp_path / "widened", version) for plugin in frozen(minor)]
        environment = Environment(
            tmp_path / "env-widened", build_wheels([tmp_path / f"sdk-{version}", *sources], tmp_path / "wider")
        )
    for plugin in frozen(minor):
        line = [
            plugin.id,
            "--env",
            "CartPole-v1",
            "--steps",
            "300",
            "--out",
            str(tmp_path / f"run-{plugin.id}"),
            "--no-preset",
        ]
        done = environment.run("-m", "rlsdk", "run", *line)
        assert done.returncode == 0, done.stderr
        done = environment.run("-m", "rlsdk", "check", plugin.id, "--json")
        broken = {(plugin.id, each["id"]) for each in json.loads(done.stdout) if each["status"] == "failed"}
        assert broken == {fault for fault in FAULTS if fault[0] == plugin.id}, done.stderr
        for path in (FOLDER / minor / AGENTS).glob(f"{plugin.id}-*"):
            done = environment.run("-m", "rlsdk", "eval", str(path), "--episodes", "1")
            assert done.returncode == 0, done.stderr
