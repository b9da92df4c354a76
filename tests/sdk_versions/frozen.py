"""Frozen plugins, written for a minor version of the SDK: sources, agent files, and the actions of these agents.

python -m tests.sdk_versions.frozen 0.2     makes agents and sums for a new folder of sources
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
import numpy as np

import rlsdk
from rlsdk.registry import plugins

FOLDER = Path(__file__).parent
SUMS, EXPECTED, AGENTS = "sums.json", "expected.json", "agents"
Changes = Mapping[str, Mapping[str, str]]


@attrs.frozen
class Frozen:
    """The sources of one frozen plugin."""

    root: Path

    @property
    def package(self) -> Path:
        """The folder of its code."""
        return next((self.root / "src").iterdir())

    @property
    def project(self) -> dict[str, object]:
        """The table `project` in its pyproject.toml."""
        table: dict[str, object] = tomllib.loads((self.root / "pyproject.toml").read_text())["project"]
        return table

    @property
    def distribution(self) -> str:
        """The name of its distribution."""
        return str(self.project["name"])

    @property
    def id(self) -> str:
        """The id of its algorithm."""
        return str(tomllib.loads((self.package / "rlsdk.toml").read_text())["id"])

    @property
    def version(self) -> str:
        """The version of the plugin."""
        (line,) = [line for line in (self.package / "__init__.py").read_text().splitlines() if "__version__ =" in line]
        return line.partition("=")[2].strip().strip('"')


def minors() -> list[str]:
    """The minor versions of the SDK whose plugins are frozen."""
    return sorted(path.name for path in FOLDER.iterdir() if path.name[0].isdigit())


def frozen(minor: str) -> list[Frozen]:
    """The frozen plugins of one minor version."""
    return [Frozen(path.parent) for path in sorted((FOLDER / minor).glob("*/pyproject.toml"))]


def range_of(minor: str) -> str:
    """The range of SDK versions that `rlsdk new` wrote in that version."""
    major, number = minor.split(".")
    return f">={minor},<{major}.{int(number) + 1}"


def copied(plugin: Frozen, folder: Path, changes: Changes | None = None) -> Path:
    """Copy a plugin's sources into `folder`, replace texts in its files, and return the copy."""
    target = folder / plugin.root.name
    shutil.copytree(plugin.root, target, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name, texts in (changes or {}).items():
        path = next(path for path in target.rglob(name))
        text = path.read_text()
        for now, then in texts.items():
            assert now in text, f"{name} has no {now!r}"
            text = text.replace(now, then)
        path.write_text(text)
    return target


@contextmanager
def on_the_path(source: Path, folder: Path) -> Iterator[Frozen]:
    """Install a plugin for this process, with the metadata of a wheel, until the context ends."""
    plugin = Frozen(source)
    name = plugin.package.name
    info = folder / f"{name}-{plugin.version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {plugin.distribution}\nVersion: {plugin.version}\n")
    points = plugin.project["entry-points"]
    assert isinstance(points, dict)
    lines = [f"{key} = {value}" for key, value in points["rlsdk.plugins"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[rlsdk.plugins]", *lines, ""]))
    (info / "RECORD").write_text(f"{name}/rlsdk.toml,,\n")
    shutil.copytree(plugin.package, folder / name)
    before = os.environ.get("PYTHONPATH")
    sys.path.insert(0, str(folder))
    # for processes that are started
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])
    plugins(rescan=True)
    try:
        yield plugin
    finally:
        sys.path.remove(str(folder))
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
        for module in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[module]
        plugins(rescan=True)


OBSERVATIONS = [
    [math.sin(7.0 * row + column) * (2.0, 3.0, 0.2, 3.0)[column] for column in range(4)] for row in range(64)
]
"""64 observations of CartPole."""


def answers(agent: rlsdk.Agent) -> list[int]:
    """The deterministic actions of an agent for `OBSERVATIONS`."""
    actions, _ = agent.predict(np.array(OBSERVATIONS, dtype=np.float32), deterministic=True)
    return [int(action) for action in actions]


def sums(minor: str) -> dict[str, str]:
    """Return file -> SHA-256 of its content, for the files of a minor version."""
    folder = FOLDER / minor
    named = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    left_out = ("__pycache__", ".ruff_cache", SUMS)
    return {
        place.as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for place, path in named.items()
        if not set(place.parts) & set(left_out)
    }


def freeze(minor: str, scratch: Path) -> None:
    """Write the agent files of a minor version's plugins, their actions, and the SHA-256 sums."""
    folder = FOLDER / minor
    assert not (folder / SUMS).exists(), f"{folder} is frozen; make a folder for another version"
    expected = dict[str, list[int]]()
    (folder / AGENTS).mkdir()
    for plugin in frozen(minor):
        place = scratch / plugin.id
        with on_the_path(copied(plugin, place), place / "site"):
            agent = rlsdk.make(plugin.id, env="CartPole-v1", seed=1).learn(600)
            name = f"{plugin.id}-{plugin.version}.rlsdk"
            agent.save(folder / AGENTS / name, include=["replay"] if agent.parts.buffer is not None else [])
            expected[name] = answers(agent)
            assert len(set(expected[name])) == 2, "an agent that always acts the same shows little"
    (folder / EXPECTED).write_text(json.dumps(expected, indent=1) + "\n")
    (folder / SUMS).write_text(json.dumps(sums(minor), indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        freeze(sys.argv[1], Path(scratch))
