"""The commands `rlsdk list` and `rlsdk info`, which describe what is installed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from rlsdk.cli.completions import Algorithm
from rlsdk.errors import one_line
from rlsdk.registry import Plugin, find, load, preset_names
from rlsdk.registry.discovery import algorithms
from rlsdk.registry.packaged_files import capabilities
from rlsdk.runtime.output import wrapped
from rlsdk.runtime.packages import pip_install

if TYPE_CHECKING:
    from rlsdk.settings.strict import FieldDoc


def show_info(
    algorithm: Algorithm,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show an algorithm: spaces, capabilities, paper, and every hyper-parameter with type, default and meaning."""
    plugin = find(algorithm)
    manifest, docs = plugin.manifest, _settings_of(plugin)
    if as_json:
        table = {} if manifest is None else attrs.asdict(manifest)
        more = {
            "version": plugin.version,
            "presets": preset_names(plugin.qualified_id),
            "settings": list(map(_row, docs)),
        }
        typer.echo(json.dumps({**table, **more, "measured": capabilities(plugin)}, indent=1, default=str))
        return
    if manifest is not None:
        typer.echo(one_line(f"{manifest.title} ({plugin.qualified_id} {plugin.version})"))
        typer.echo(wrapped(one_line(manifest.summary), 0) + "\n")
        rows = {
            "paper": manifest.paper,
            "family": manifest.family,
            "actions": ", ".join(manifest.actions),
            "observations": ", ".join(manifest.observations),
            "policies": ", ".join(manifest.policies),
            "traits": ", ".join(manifest.traits),
            "presets": ", ".join(preset_names(plugin.qualified_id)),
            "measured": _measured(capabilities(plugin)),
        }
        for name, value in rows.items():
            typer.echo(wrapped(f"{name + ':':<14}{one_line(value)}", 14))
    typer.echo("\nhyper-parameters:")
    for doc in docs:
        _show(doc, indent=2)


def _measured(found: dict[str, Any] | None) -> str:
    """Return one line with the measured capabilities of an algorithm, or the command that measures them."""
    if found is None:
        return "not yet; rlsdk check ID --capabilities"
    texts = {name: ", ".join(value) if isinstance(value, list) else value for name, value in found.items()}
    flags = {"environments": "several environments", "resume": "exact resuming"}
    return "; ".join(flags.get(k, k) if v is True else f"{k} {v}" for k, v in texts.items() if v)


def _settings_of(plugin: Plugin) -> list[FieldDoc]:
    """Load a plugin, and return its hyper-parameters.

    Raises:
        PluginError: it does not load, or its settings cannot be described.
    """
    from rlsdk.settings.strict import describe  # imports cattrs

    spec = load(plugin.qualified_id)
    try:
        return list(describe(spec.config_type))
    except Exception as error:
        raise plugin.broken(f"its settings cannot be read: {type(error).__name__}: {error}") from error


def _row(doc: FieldDoc) -> dict[str, object]:
    """Return a hyper-parameter as a table for JSON."""
    texts = {name: str(getattr(doc, name)) for name in ("name", "type", "help", "unit", "source")}
    return {**texts, "default": _default(doc), "children": [_row(each) for each in doc.children]}


def _default(doc: FieldDoc) -> str:
    from rlsdk.settings.strict import toml_value

    return "required" if doc.required else f"default {toml_value(doc.default)}"


def _show(doc: FieldDoc, indent: int) -> None:
    margin = " " * indent
    kind = "a table" if doc.children else f"{doc.type}, {_default(doc)}"
    typer.echo(wrapped(f"{margin}{doc.name}: {kind}", indent + 8))
    unit, source = (f" [{doc.unit}]" if doc.unit else ""), (f" ({doc.source})" if doc.source else "")
    typer.echo(wrapped(f"{margin}    {doc.help}{unit}{source}", indent + 4))
    for child in doc.children:
        _show(child, indent + 4)


def list_algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the installed algorithms. Imports neither torch nor any plugin."""
    found = algorithms()
    if as_json:
        typer.echo(json.dumps([_record(plugin) for plugin in found], indent=1))
        return
    if not found:
        typer.echo(f"no algorithm is installed; try: {pip_install('rlsdk-tqc')}")
        return
    column = min(max(len(plugin.id) for plugin in found), 20)
    groups: dict[str, list[str]] = {}
    for plugin in found:
        family = (plugin.manifest.family if plugin.manifest else None) or "cannot be read"
        summary = f"CANNOT BE USED: {plugin.problem}" if plugin.problem else getattr(plugin.manifest, "summary", "")
        own = re.sub(f"^{re.escape(family)}[:,] ", "", one_line(summary))  # the group has the family as its title
        text = f"  {one_line(plugin.id):<{column}}  {own}"
        # a problem names a command, which is copied as a whole
        groups.setdefault(family, []).append(text if plugin.problem else wrapped(text, column + 4))
    known = [family for family in FAMILIES if family in groups]
    lines = [
        line for family in (*known, *sorted(set(groups) - set(known))) for line in (one_line(family), *groups[family])
    ]
    typer.echo("\n".join(lines))  # at once: `echo` flushes, and there may be thousands of rows


FAMILIES = ("on-policy", "off-policy", "offline", "imitation")
"""The families that `rlsdk list` shows first; others follow in the order of the alphabet."""


def _record(plugin: Plugin) -> dict[str, object]:
    manifest = plugin.manifest
    context: dict[str, object] = {}
    if manifest is not None:
        context = dict(attrs.asdict(manifest))
    known = {"id": plugin.id, "distribution": plugin.distribution, "version": plugin.version}
    return {**context, **known, "problem": plugin.problem}
