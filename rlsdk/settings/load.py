"""Settings from files and from the command line. The standard library reads TOML, ruamel.yaml reads YAML 1.2."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlsdk.errors import SettingsError

POINT_AT_AN_END = re.compile(r"[+-]?(\d+\.|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
"""Numbers that begin or end with a decimal point, such as .99 and 1., which TOML does not accept."""
SUFFIXES = (".toml", ".yaml", ".yml")


def load_settings(path: Path) -> dict[str, object]:
    """Return the table in a `.toml`, `.yaml` or `.yml` file.

    Raises:
        SettingsError: the file is missing or damaged, has another suffix, or does not contain a table.
    """
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"settings file {path} must end in .toml, .yaml or .yml")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"settings file {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings file {path} is not text in UTF-8: {error}") from None
    if path.suffix == ".toml":
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"settings file {path} is not valid TOML: {error}") from None
    return _load_yaml(path, text)


def _load_yaml(path: Path, text: str) -> dict[str, object]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe", pure=True).load(text)  # YAML 1.2: 1e-3 is a number, "on" is a text
    except (YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"settings file {path} is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise SettingsError(f"settings file {path} must hold a table of names and values, not {type(data).__name__}")
    return data


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
