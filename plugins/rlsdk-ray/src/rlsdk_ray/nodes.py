"""What the processes on all nodes must have in common: versions of rlsdk and its plugins, and the current folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import attrs

from rlsdk.errors import PluginError
from rlsdk.registry import plugins

CORE = "rlsdk"


@attrs.frozen
class Surroundings:
    """The versions and the current folder of the process that submits work."""

    versions: tuple[tuple[str, str], ...]
    """Pairs (package, version) for rlsdk and its plugins."""
    folder: str

    @staticmethod
    def here() -> Surroundings:
        """The surroundings of this process."""
        return Surroundings(_versions(), os.getcwd())

    def enter(self) -> None:
        """Change to the same folder, if this node has it, so that relative paths have the same meaning. Called where work runs.

        Raises:
            PluginError: this node has other versions.
        """
        _require_same(self.versions)
        if os.path.isdir(self.folder):
            os.chdir(self.folder)


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    names = {CORE, *(each.distribution for each in plugins())}
    return tuple(sorted((name, _installed(name)) for name in names))


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


@cache
def _require_same(wanted: tuple[tuple[str, str], ...]) -> None:
    other = {name: (there, _installed(name)) for name, there in wanted if _installed(name) != there}
    if other:
        raise PluginError(
            f"node {socket.gethostname()} has other versions than the program: {_listed(other)}; install the same ones on all"
            " nodes"
        )


def _listed(other: Mapping[str, tuple[str, str]]) -> str:
    return ", ".join(f"{name} {here} ({there} there)" for name, (here, there) in other.items())
