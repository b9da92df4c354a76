"""Settings files of rl-baselines3-zoo, `hyperparams/<algorithm>.yml`, as presets.

Such a file has a table for each environment. Some values are Python expressions, such as "dict(activation_fn=nn.ReLU)". They
are parsed, not evaluated. Accepted are `dict(...)`, tables, lists, numbers, text, and the names of activations and optimizers.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from rlsdk.errors import SettingsError, one_line, shown, suggest
from rlsdk.registry import AlgorithmSpec, Preset
from rlsdk.settings import environment_id, merge, structure

FALLBACK = "default"
"""The table for environments that have no table."""
LONGEST = 10_000
"""Largest number of characters of an expression."""
OURS = {"HerReplayBuffer": "hindsight"}
NOISES = ("normal", "ornstein-uhlenbeck")
WRAPPERS = {
    "AtariWrapper": "rlsdk_envs:AtariWrapper",
    "MaskVelocityWrapper": "MaskVelocity",
    "TimeFeatureWrapper": "TimeFeature",
}
"""Wrapper of rl-baselines3-zoo -> what `--wrapper` accepts for it."""
ELSEWHERE = {
    "env_kwargs": "pass its entries with --env-kwargs NAME=VALUE",
    "vec_env_wrapper": "wrap the environments with --wrapper, or set normalize and frame_stack",
    "callback": "pass callbacks to learn() in Python, or use the options of rlsdk run",
}
"""Entry that is not a setting -> what to do instead."""


def rl_zoo_preset(path: Path, spec: AlgorithmSpec, env: str) -> Preset:
    """Return the table of the environment id `env` in a file of rl-baselines3-zoo, as a preset of an algorithm.

    If the environment has no table, use the table `default`. Wrappers in the table are not applied: `env` must name them.

    Raises:
        SettingsError: the file cannot be read, has no table for the environment, or an entry that the algorithm does not have.
    """
    wanted = environment_id(env)
    tables = tables_in(path)
    name = wanted.name if wanted.name in tables else FALLBACK
    table = tables.get(name)
    if not isinstance(table, Mapping):
        raise SettingsError(f"{path} has no table for {wanted.name!r}; {suggest(wanted.name, map(str, tables))}")
    place = f"{path}, {name}"
    entries = {str(key): _value(value, f"{place}, {key}") for key, value in table.items()}
    _require_wrapped(entries.pop("env_wrapper", None), place, wrapped=bool(wanted.wrappers))
    for key in ELSEWHERE.keys() & entries.keys():
        raise SettingsError(f"{place} has {key} = {shown(entries[key])}, which is not a setting; {ELSEWHERE[key]}")
    steps, n_envs = _count(entries, "n_timesteps", place), _count(entries, "n_envs", place)
    if steps is None:
        raise SettingsError(f"{place} has no n_timesteps; add n_timesteps: 100000, for example")
    settings = _settings(entries, spec, place)
    return Preset(env=wanted.name, steps=steps, n_envs=n_envs, settings=settings, source=str(path))


def _settings(entries: dict[str, object], spec: AlgorithmSpec, place: str) -> dict[str, object]:
    """Return the entries as settings of rlsdk, checked."""
    kind, deviation = entries.pop("noise_type", None), entries.pop("noise_std", None)
    if kind is not None:
        if kind not in NOISES or isinstance(deviation, bool) or not isinstance(deviation, int | float):
            raise SettingsError(
                f"{place} has noise_type = {shown(kind)} and noise_std = {shown(deviation)}; accepted: {' or '.join(NOISES)},"
                " and a number"
            )
        entries["action_noise"] = {"kind": kind, "mean": 0.0, "sigma": float(deviation)}
    if entries.get("normalize") is False:
        del entries["normalize"]
    names = {field.name for field in attrs.fields(spec.config_type)}
    if unknown := sorted(entries.keys() - names):
        raise SettingsError(f"{place} has {unknown[0]!r}, which {spec.id} does not; {suggest(unknown[0], names)}")
    try:
        structure(merge({"policy": spec.policies[0]}, entries), spec.config_type)
    except SettingsError as error:
        raise SettingsError(f"{place}: {error}") from None
    return entries


def _require_wrapped(wrappers: object, place: str, *, wrapped: bool) -> None:
    """Raise SettingsError if the table has wrappers but the environment of the run has none."""
    if not wrappers or wrapped:
        return
    given = [_wrapper(item) for item in (wrappers if isinstance(wrappers, list) else [wrappers])]
    ours = [
        WRAPPERS.get(name.rpartition(".")[2], ":".join(name.rsplit(".", 1))) + (f"({arguments})" if arguments else "")
        for name, arguments in given
    ]
    how = f"add {' '.join(f'--wrapper {shlex.quote(name)}' for name in ours)}"
    calls = ", ".join(f"{name}({arguments})" for name, arguments in given)
    raise SettingsError(f"{place} wraps the environment in {calls}; a file may not choose what is imported: {how}")


def _wrapper(item: object) -> tuple[str, str]:
    """Return the import path of a wrapper, and its arguments as text."""
    if not isinstance(item, Mapping) or not item:
        return str(item), ""
    name, arguments = next(iter(item.items()))
    table = arguments if isinstance(arguments, Mapping) else {}
    return str(name), ", ".join(f"{key}={value!r}" for key, value in table.items())


def _count(entries: dict[str, object], name: str, place: str) -> int | None:
    """Remove an entry and return it as a positive whole number; None if it is absent. rl-baselines3-zoo also writes 1e6."""
    value = entries.pop(name, None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < 2**63 or value % 1:
        raise SettingsError(f"{place} has {name} = {shown(value)}; give a positive whole number")
    return int(value)


def _value(value: object, place: str) -> object:
    """Return a value of the file. Python expressions are parsed, and names of rl-baselines3-zoo are replaced."""
    if not isinstance(value, str):
        return value
    if value in OURS:
        return OURS[value]
    if not value.strip().startswith(("dict(", "{", "[", "(")):
        return value
    try:
        if len(value) > LONGEST:
            raise SettingsError(f"{len(value)} characters, at most {LONGEST} are read")
        return _read(ast.parse(value.strip(), mode="eval").body)
    except (SettingsError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SettingsError(f"{place}: {shown(value, 100)} cannot be read: {error}") from None


def _read(node: ast.expr) -> object:
    """Return the value of an expression that consists of literals, `dict(...)` and names.

    Raises:
        SettingsError: it is another expression.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=entries) | ast.Tuple(elts=entries):
            return [_read(entry) for entry in entries]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _read(value) for key, value in zip(keys, values, strict=True)}
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return {_key(keyword.arg): _read(keyword.value) for keyword in keywords}
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lower()  # an activation or optimizer, such as nn.ReLU
    raise SettingsError(f"{ast.unparse(node)[:100]} is neither a literal, dict(...) nor a name")


def _key(key: ast.expr | str | None) -> str:
    name = key.value if isinstance(key, ast.Constant) else key
    if not isinstance(name, str):
        raise SettingsError("a key is not a text")
    return name


LIMIT = 256 * 1024
"""The largest size of a file in bytes."""
MOST_VALUES, MOST_DEPTH = 10_000, 16
"""The largest number of values in a file, and the largest depth of nested tables and lists."""


class _UnreadableError(ValueError):
    """A file cannot be read; the message is the reason, one line that begins with `is`, `has`, `must` or `cannot`."""


def tables_in(path: Path) -> dict[str, object]:
    """Return the table in a file in YAML.

    Raises:
        SettingsError: the file is missing, damaged or larger than the limits, or does not contain a table whose keys are texts.
    """
    try:
        # reading a pipe that has no writer would never end
        if path.exists() and not path.is_file():
            raise _UnreadableError("is not a regular file")
        if path.stat().st_size > LIMIT:
            raise _UnreadableError(f"is larger than {LIMIT // 1024} kB")
        return _parsed(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings file {path} is not UTF-8: byte {error.start}") from None
    except (_UnreadableError, OSError) as error:
        reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error
        raise SettingsError(f"settings file {path} {reason}") from None


def _parsed(text: str) -> dict[str, object]:
    """Return the table in a text in YAML. Raises _UnreadableError if it is another text, or one larger than the limits."""
    # Imported here: 30 ms, and most presets come from packages.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        # Before loading: aliases of aliases make any number of values from 300 bytes.
        _require_small(YAML(typ="safe", pure=True).parse(text))
        data = YAML(typ="safe", pure=True).load(text)  # YAML 1.2: 1e-3 is a number, "on" is a text
        _require_texts(data)
    except _UnreadableError:
        raise
    except (YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        # ruamel.yaml raises all of these for tags whose values do not fit
        reason = one_line(" ".join(str(error).split()), 300)
        raise _UnreadableError(f"is not valid YAML: {reason}") from None
    if not isinstance(data, dict):
        raise _UnreadableError(f"must hold a table of names and values, not {type(data).__name__}")
    return data


def _require_small(events: Iterable[Any]) -> None:
    """Check the number of values and the depth of the nesting. An alias counts as much as the value that it stands for: with
    aliases of aliases, a text of 300 bytes stands for any number of values.

    Raises:
        _UnreadableError: there are too many values, they are nested too deeply, or an alias stands for what contains it.
    """
    sizes, total = dict[str, int](), 0
    open_values: list[tuple[str | None, int]] = []
    """(anchor, number of values before) of the tables and lists that have not ended."""
    for event in events:
        anchor, kind = getattr(event, "anchor", None), type(event).__name__
        if any(anchor is not None and anchor == opened for opened, _ in open_values) and kind == "AliasEvent":
            raise _UnreadableError(f"is not valid YAML here: the alias {shown(anchor, 50)} stands for what contains it")
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            open_values.append((anchor, total))
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            anchor, before = open_values.pop()
            sizes[anchor or ""] = total - before
        elif kind == "ScalarEvent":
            sizes[anchor or ""] = 1
        total += sizes.get(anchor or "", 1) if kind == "AliasEvent" else 1
        if total > MOST_VALUES or len(open_values) > MOST_DEPTH:
            raise _UnreadableError(
                f"is not valid YAML here: it has more than {MOST_VALUES} values, aliases included, or is nested too deeply"
            )


def _require_texts(data: object) -> None:
    """Raises _UnreadableError if a key of a table is not a text."""
    # Without recursion, because a file decides the depth.
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if wrong := [key for key in value if not isinstance(key, str)]:
                raise _UnreadableError(f"has the key {shown(wrong[0], 50)}, which is not a text; write it in quotes")
            pending += value.values()
        elif isinstance(value, list):
            pending += value
