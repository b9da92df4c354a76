"""Finds the plugin of an agent file, and converts files that an earlier version of the plugin wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rlsdk.errors import ArtifactError, PluginError, RlsdkError, fitting, shown
from rlsdk.interfaces import State
from rlsdk.registry import AlgorithmSpec, plugin_of, plugins
from rlsdk.registry import load as load_plugin
from rlsdk.runtime.pip_commands import pip_install

_PACKAGE, _VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), re.compile(r"[\w.!+-]{1,100}")
UNKNOWN = "unknown"


def made_with(document: Mapping[str, object]) -> tuple[str, str]:
    """(distribution, version) of the plugin that a file was made with; `unknown` for an entry that is missing or malformed."""
    named = document.get("plugin")
    named = named if isinstance(named, dict) else {}
    context = (named.get("distribution"), _PACKAGE), (named.get("version"), _VERSION)
    name, number = (v if isinstance(v, str) and pattern.fullmatch(v) else UNKNOWN for v, pattern in context)
    return name, number


def algorithm_in(document: Mapping[str, object]) -> str:
    """The id of the algorithm of a file; raises ArtifactError if its manifest names none."""
    name = document.get("algorithm")
    if not isinstance(name, str):
        raise ArtifactError("the file is damaged: its manifest names no algorithm")
    return name


def spec_for(document: Mapping[str, object]) -> AlgorithmSpec:
    """The spec of the algorithm of a file. If several installed plugins offer the algorithm, that of the file's plugin.

    Raises:
        ArtifactError: the file names no algorithm. PluginError: its plugin is not installed or is broken.
    """
    name, (distribution, _) = algorithm_in(document), made_with(document)
    qualified = f"{distribution}/{name}"
    installed = any(plugin.qualified_id == qualified for plugin in plugins())
    try:
        return load_plugin(qualified if installed else name)
    except PluginError as error:
        missing = not installed and distribution not in (UNKNOWN, "registered")
        fix = f"; install its plugin: {pip_install(distribution)}" if missing else ""
        raise PluginError(
            f"the file holds a {shown(name, 100)} agent made with {distribution}: {error}{fix}"
        ) from error


def upgraded(document: Mapping[str, object], sections: State, spec: AlgorithmSpec) -> tuple[dict[str, object], State]:
    """(document, sections) of a file, converted to the form that the installed plugin writes.

    The plugin converts its settings and state with `AlgorithmSpec.upgrade`.

    Raises:
        ArtifactError: that function fails. PluginError: it does not return settings and state.
    """
    settings, missing = document.get("config"), document.get("not_stored")
    if spec.upgrade is None or not isinstance(settings, dict) or not isinstance(missing, list):
        return dict(document), dict(sections)
    _, number = made_with(document)
    with fitting(f"the file cannot be changed from version {number} of its plugin to the one that is installed"):
        answer = spec.upgrade(dict(settings), dict(sections), number)
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(isinstance(part, dict) for part in answer):
        raise PluginError(f"{spec.id} is broken: its `upgrade` returned {shown(answer)}; return (settings, state)")
    settings, state = answer
    left_out = [name for name in missing if isinstance(name, str) and name.partition(".")[0] in settings]
    return {**document, "config": settings, "not_stored": left_out}, state


@contextmanager
def naming(source: Path | IO[bytes], document: Mapping[str, object], spec: AlgorithmSpec) -> Iterator[None]:
    """Add to errors inside the block the file, the version of the plugin it was made with, and the installed version."""
    try:
        yield
    except RlsdkError as error:
        plugin, (distribution, number) = plugin_of(spec), made_with(document)
        file = str(source) if isinstance(source, Path) else "the file"
        if plugin is not None and (distribution, number) == (plugin.distribution, plugin.version):
            raise type(error)(str(error) if file in str(error) else f"{file}: {error}") from error
        here = f", installed is {plugin.distribution} {plugin.version}" if plugin is not None else ""
        if plugin is not None and UNKNOWN not in (distribution, number) and number != plugin.version:
            here += f"; {pip_install(f'{distribution}=={number}')}, or give other settings: load(..., custom_objects={{...}})"
        raise type(error)(f"{error}; {file} was made with {distribution} {number}{here}") from error
