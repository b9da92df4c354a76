"""What the processes on all nodes must have in common: versions of rlsdk and its plugins, the current folder, and the folders
of modules."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import attrs

from rlsdk.errors import PluginError
from rlsdk.registry import plugins

CORE = "rlsdk"


@attrs.frozen
class Surroundings:
    """The versions, the current folder and the folders of modules of the process that submits work."""

    versions: tuple[tuple[str, str], ...]
    """Pairs (package, version) for rlsdk and its plugins."""
    folder: str
    path: tuple[str, ...] = ()
    """`sys.path`: it has the folders of users' modules, such as those of environments."""

    @staticmethod
    def here() -> Surroundings:
        """The surroundings of this process."""
        return Surroundings(_versions(), os.getcwd(), tuple(sys.path))

    def enter(self) -> None:
        """Change to the same folder, if this node has it, so that relative paths have the same meaning. Called where work runs.

        Folders of modules that this node has are added at the end of `sys.path`.

        Raises:
            PluginError: this node has other versions.
        """
        _require_same(self.versions)
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        sys.path += [place for place in self.path if place not in sys.path and os.path.isdir(place)]


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
