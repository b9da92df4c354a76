"""Settings from files and from the command line. The standard library reads TOML, ruamel.yaml reads YAML 1.2."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlsdk.errors import SettingsError, one_line, shown
from rlsdk.runtime.plain_files import MOST_DEPTH, PlainFileError, parse_toml, read_text

POINT_AT_AN_END = re.compile(r"[+-]?(\d+\.|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
"""Numbers that begin or end with a decimal point, such as .99 and 1., which TOML does not accept."""
SUFFIXES = (".toml", ".yaml", ".yml")
LIMIT = 256 * 1024
"""The largest size of a settings file in bytes."""
MOST_VALUES = 10_000
"""The largest number of values in a settings file in YAML."""


def load_settings(path: Path) -> dict[str, object]:
    """Return the table in a `.toml`, `.yaml` or `.yml` file.

    Raises:
        SettingsError: the file is missing or damaged, is larger than `LIMIT`, has another suffix, or does not contain a table
            whose keys are texts.
    """
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"settings file {path} must end in .toml, .yaml or .yml")
    try:
        text = read_text(path, LIMIT)
        if text is None:
            raise PlainFileError("cannot be read: No such file or directory")
        return parse_toml(text) if path.suffix == ".toml" else _parse_yaml(text)
    except PlainFileError as error:
        raise SettingsError(f"settings file {path} {error}") from None


def _parse_yaml(text: str) -> dict[str, object]:
    """Return the table in a text in YAML. Raises PlainFileError if it is another text, or one larger than the limits."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        _require_small(YAML(typ="safe", pure=True).parse(text))
        data = YAML(typ="safe", pure=True).load(text)  # YAML 1.2: 1e-3 is a number, "on" is a text
        _require_texts(data)
    except PlainFileError:
        raise
    except (YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        # ruamel.yaml raises all of these for tags whose values do not fit
        reason = one_line(" ".join(str(error).split()), 300)
        raise PlainFileError(f"is not valid YAML: {reason}") from None
    if not isinstance(data, dict):
        raise PlainFileError(f"must hold a table of names and values, not {type(data).__name__}")
    return data


def _require_small(events: Iterable[Any]) -> None:
    """Check the number of values and the depth of the nesting. An alias counts as much as the value that it stands for: with
    aliases of aliases, a text of 300 bytes stands for any number of values.

    Raises:
        PlainFileError: there are too many values, they are nested too deeply, or an alias stands for a value that contains it.
    """
    sizes, total = dict[str, int](), 0
    open_values: list[tuple[str | None, int]] = []
    """(anchor, number of values before) of the tables and lists that have not ended."""
    for event in events:
        anchor, kind = getattr(event, "anchor", None), type(event).__name__
        if any(anchor is not None and anchor == opened for opened, _ in open_values) and kind == "AliasEvent":
            raise PlainFileError(f"is not valid YAML here: the alias {shown(anchor, 50)} stands for what contains it")
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            open_values.append((anchor, total))
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            anchor, before = open_values.pop()
            sizes[anchor or ""] = total - before
        elif kind == "ScalarEvent":
            sizes[anchor or ""] = 1
        total += sizes.get(anchor or "", 1) if kind == "AliasEvent" else 1
        if total > MOST_VALUES or len(open_values) > MOST_DEPTH:
            raise PlainFileError(
                f"is not valid YAML here: it has more than {MOST_VALUES} values, aliases included, or is nested too deeply"
            )


def _require_texts(data: object) -> None:
    """Raises PlainFileError if a key of a table is not a text."""
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if wrong := [key for key in value if not isinstance(key, str)]:
                raise PlainFileError(f"has the key {shown(wrong[0], 50)}, which is not a text; write it in quotes")
            pending += value.values()
        elif isinstance(value, list):
            pending += value


def parse_assignments(assignments: Iterable[str]) -> dict[str, object]:
    """Return nested settings, given assignments such as `["a.b=1e-3", "c=text"]`. `parse_value` reads the values.

    >>> parse_assignments(["policy_kwargs.n_critics=5", "ent_coef=auto_0.1"])
    {'policy_kwargs': {'n_critics': 5}, 'ent_coef': 'auto_0.1'}

    Raises:
        SettingsError: an assignment has no `=`, or a name is empty.
    """
    result: dict[str, object] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        keys = [key.strip() for key in name.split(".")]
        if not equals or not all(keys):
            raise SettingsError(f"--set {assignment!r} is not NAME=VALUE, e.g. --set learning_rate=1e-3")
        result = merge(result, nested(keys, parse_value(text.strip())))
    return result


def nested(keys: Sequence[str], value: object) -> dict[str, object]:
    """Return nested tables: `{"a": {"b": value}}` for the keys a and b."""
    for key in reversed(keys[1:]):
        value = {key: value}
    return {keys[0]: value}


def parse_value(text: str) -> object:
    """Parse a value of the command line: none, null, True, False or a value in TOML.

    Text that is none of these is returned unchanged.
    """
    if text.lower() in ("none", "null"):
        return None
    if text in ("True", "False"):
        return text == "True"
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return float(text) if POINT_AT_AN_END.fullmatch(text) else text


def merge(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, Any]:
    """Return `below` with the values of `above` added. Values of `above` replace those of `below`; nested tables are merged."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
