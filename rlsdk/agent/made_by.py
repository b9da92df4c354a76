"""Which plugin an agent file belongs to, and what happens where it was made with another version of that plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlsdk.errors import ArtifactError, PluginError, RlsdkError, fitting
from rlsdk.registry import AlgorithmSpec, plugin_of, plugins
from rlsdk.registry import load as load_plugin
from rlsdk.runtime.output import shown

if TYPE_CHECKING:
    from rlsdk.agent import Agent

Sections = Mapping[str, Any]
_PACKAGE, _VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), re.compile(r"[\w.!+-]{1,100}")
UNKNOWN = "unknown"


def made_with(document: Mapping[str, Any]) -> tuple[str, str]:
    """(distribution, version) of the plugin that made a file, `unknown` where it does not say."""
    named = document.get("plugin")
    named = named if isinstance(named, dict) else {}
    facts = (named.get("distribution"), _PACKAGE), (named.get("version"), _VERSION)
    name, number = (v if isinstance(v, str) and pattern.fullmatch(v) else UNKNOWN for v, pattern in facts)
    return name, number


def class_for(document: Mapping[str, Any], cls: type[Agent]) -> type[Agent]:
    """The class of the agent in a file: `cls`, or for plain `Agent` that of the plugin the file names.

    Of several plugins that offer the algorithm, the one the file was made with is taken.

    Raises:
        ArtifactError: the file holds another algorithm. PluginError: its plugin is not installed, or broken.
    """
    from rlsdk.agent import Agent, agent_class

    name, (distribution, _) = document.get("algorithm"), made_with(document)
    if not isinstance(name, str):
        raise ArtifactError("the file is damaged: its manifest names no algorithm")
    if cls is not Agent:
        if cls.spec.id != name:
            raise ArtifactError(
                f"the file holds a {shown(name, 100)} agent, not a {cls.spec.id!r}; rlsdk.load(path) opens any"
            )
        return cls
    qualified = f"{distribution}/{name}"
    installed = any(plugin.qualified_id == qualified for plugin in plugins())
    try:
        return agent_class(load_plugin(qualified if installed else name))
    except PluginError as error:
        missing = not installed and distribution not in (UNKNOWN, "registered")
        fix = f"; install its plugin: pip install {distribution}" if missing else ""
        raise PluginError(
            f"the file holds a {shown(name, 100)} agent made with {distribution}: {error}{fix}"
        ) from error


def upgraded(
    document: Mapping[str, Any], sections: Sections, spec: AlgorithmSpec
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Document and sections as the installed version of the plugin writes them: `AlgorithmSpec.upgrade` has changed them.

    Raises:
        ArtifactError: the plugin's function fails. PluginError: it returns something else than settings and state.
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
    kept = [name for name in missing if isinstance(name, str) and name.partition(".")[0] in settings]
    return {**document, "config": settings, "not_stored": kept}, state


@contextmanager
def naming(source: Path | IO[bytes], document: Mapping[str, Any], spec: AlgorithmSpec) -> Iterator[None]:
    """Errors inside name the file, the version of the plugin it was made with, and the one that is installed."""
    try:
        yield
    except RlsdkError as error:
        plugin, (distribution, number) = plugin_of(spec), made_with(document)
        file = str(source) if isinstance(source, Path) else "the file"
        here = f", installed is {plugin.distribution} {plugin.version}" if plugin is not None else ""
        if plugin is not None and UNKNOWN not in (distribution, number) and number != plugin.version:
            here += f"; install {distribution}=={number}, or give other settings: load(..., custom_objects={{...}})"
        raise type(error)(f"{error}; {file} was made with {distribution} {number}{here}") from error
