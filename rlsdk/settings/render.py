"""Descriptions of a config class: a table of fields, a commented settings file, a docstring and a signature."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from textwrap import fill
from typing import Any, cast, get_type_hints

import attrs

from rlsdk.settings.strict import unstructure


@attrs.frozen
class FieldDoc:
    """The description of one hyper-parameter for users. `children` are the fields of a nested table."""

    name: str
    type: str
    default: object
    required: bool
    help: str
    unit: str
    source: str
    tune: tuple[float, float] | None = None
    """The range in which a search varies it; None: a search leaves it as it is."""
    children: tuple[FieldDoc, ...] = ()


def describe(kind: type[object]) -> tuple[FieldDoc, ...]:
    """Return the description of every hyper-parameter of a config class, in constructor order."""
    hints = get_type_hints(kind)
    return tuple(_describe(field, hints[field.name]) for field in parameters(kind))


def parameters(kind: type[object]) -> list[attrs.Attribute[object]]:
    """Return the fields in constructor order: positional ones first, then keyword-only ones."""
    fields = list(attrs.fields(cast("Any", kind)))
    return [f for f in fields if not f.kw_only] + [f for f in fields if f.kw_only]


def _describe(field: attrs.Attribute[object], hint: type[object]) -> FieldDoc:
    required = field.default is attrs.NOTHING
    default = None if required else default_of(field)
    nested = attrs.has(hint) and not hasattr(hint, "to_setting")
    return FieldDoc(
        name=field.name,
        type=_type_name(hint),
        default=unstructure(default),
        required=required,
        help=field.metadata.get("help", ""),
        unit=field.metadata.get("unit", ""),
        source=field.metadata.get("source", ""),
        tune=field.metadata.get("tune"),
        children=describe(hint) if nested else (),
    )


def default_of(field: attrs.Attribute[object]) -> object:
    """Return the default of a field after its factory and its converter."""
    default: Any = field.default
    value = default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]
    converter = cast("object", field.converter)
    return converter(value) if callable(converter) else value


def _type_name(hint: object) -> str:
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(hint))


def signature(kind: type[object]) -> inspect.Signature:
    """Return the signature of `__init__` of an agent class whose config class is `kind`."""
    hints = get_type_hints(kind)
    values = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for field in parameters(kind):
        default = inspect.Parameter.empty if field.default is attrs.NOTHING else unstructure(default_of(field))
        how = inspect.Parameter.KEYWORD_ONLY if field.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        values.append(inspect.Parameter(field.name, how, default=default, annotation=hints[field.name]))
    return inspect.Signature(values)


def docstring(kind: type[object]) -> str:
    """Return the docstring of a constructor: an `Args:` section that documents every hyper-parameter."""
    lines = ["Make an agent.", "", "Args:"]  # `help` removes all indentation unless a later line has none
    for doc in describe(kind):
        lines.append(fill(f"{doc.name}: {_sentence(doc)}", 100, initial_indent="    ", subsequent_indent="        "))
        for child in doc.children:
            text = f"{child.name}: {_sentence(child)}"
            lines.append(fill(text, 100, initial_indent="        ", subsequent_indent="            "))
    return "\n".join(lines)


def _sentence(doc: FieldDoc) -> str:
    unit = f" [{doc.unit}]" if doc.unit else ""
    source = f" ({doc.source})" if doc.source else ""
    default = "" if doc.required or doc.children else f" Default: {toml_value(doc.default)}."
    return f"{doc.help}{unit}{source}.{default}"


def commented_toml(kind: type[object], values: Mapping[str, object], *, header: str = "") -> str:
    """Return a settings file with comments: every field with its description, set to its entry in `values` or its default."""
    lines = [f"# {line}" for line in header.splitlines()] + [""]
    tables: list[tuple[FieldDoc, Mapping[str, object]]] = []
    for doc in describe(kind):
        if doc.children:
            table = values.get(doc.name)
            tables.append((doc, table if isinstance(table, Mapping) else {}))
        else:
            lines += _toml_field(doc, values.get(doc.name, doc.default))
    for doc, table in tables:
        lines += [f"[{doc.name}]  # {doc.help}"]
        for child in doc.children:
            lines += _toml_field(child, table.get(child.name, child.default))
    return "\n".join(lines).rstrip() + "\n"


def _toml_field(doc: FieldDoc, value: object) -> list[str]:
    comment = f"# {_sentence(doc)} Type: {doc.type}."
    text = fill(comment, 110, subsequent_indent="#   ")
    assignment = f"# {doc.name} =  (none)" if value is None else f"{doc.name} = {toml_value(value)}"
    return [text, assignment, ""]


def toml_value(value: object) -> str:
    """Return a value in TOML syntax. None, which TOML does not have, becomes `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items() if v is not None) + " }"
    return json.dumps(value) if isinstance(value, str) else str(value)
