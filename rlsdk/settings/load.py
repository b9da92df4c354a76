"""Settings from files and from the command line: TOML, recorded data, ids of environments with arguments."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args, get_type_hints, overload
from urllib.parse import quote, unquote

import attrs

from rlsdk.errors import ArtifactError, SettingsError, shown
from rlsdk.runtime.files import PlainFileError, parse_toml, read_text

if TYPE_CHECKING:  # it imports numpy, which a listing does without
    from rlsdk.spaces import Space

POINT_AT_AN_END = re.compile(r"[+-]?(\d+\.|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
"""Numbers that begin or end with a decimal point, such as .99 and 1., which TOML does not accept."""
LIMIT = 16 * 1024
"""The largest size of a settings file in bytes. The time of tomllib grows with the square of the parts of a dotted key: 16 kB
of dots take 2 s."""


def load_settings(path: Path) -> dict[str, object]:
    """Return the table in a `.toml` file.

    Raises:
        SettingsError: the file is missing, damaged or larger than `LIMIT`, or has another suffix.
    """
    if path.suffix != ".toml":
        raise SettingsError(
            f"settings file {path} must end in .toml; pass a file of rl-baselines3-zoo with --preset instead of --config"
        )
    try:
        text = read_text(path, LIMIT)
        if text is None:
            raise PlainFileError("cannot be read: No such file or directory")
        return parse_toml(text)
    except PlainFileError as error:
        raise SettingsError(f"settings file {path} {error}") from None


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
    # TOML has no word for None.
    if text.lower() in ("none", "null"):
        return None
    # As Python spells them; TOML knows the lower case only.
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
        # A new table, because both arguments may be used again.
        merged[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


@attrs.frozen
class DataReference:
    """A setting that refers to recorded data, which agent files do not contain.

    A package derives a class for each kind of data that it reads, with `identify` and `contents`, and its algorithms have
    settings of that class. Settings give a path: `dataset="demo.safetensors"`. Agent files store `name` and `digest`, never
    the path. To continue training, give the path again.
    """

    name: str
    """Name for messages: that of the file, without folder and suffix."""
    digest: str
    """Text that differs for other data, such as a SHA-256 digest."""
    # Left out of comparisons: data that were moved are still the same.
    path: str | None = attrs.field(default=None, eq=False)
    """Path of the data. None if the agent was loaded without them: it can predict, but not train."""

    @staticmethod
    def identify(path: str | PathLike[str]) -> tuple[Path, str]:
        """Return (the file or folder of the data at `path`, its digest). Reads as little as possible.

        Raises:
            ArtifactError: there are no such data.
        """
        raise NotImplementedError

    def contents(self) -> tuple[str | None, tuple[Space, Space]]:
        """Return (id of the recorded environment or None, (observation space, action space)) of the data at `self.path`.

        Raises:
            ArtifactError: the data are missing or damaged.
        """
        raise NotImplementedError

    @classmethod
    def at(cls, path: str | PathLike[str], digest: str | None = None) -> Self:
        """Return the reference to the data at `path`.

        Raises:
            ArtifactError: as `identify`, or the digest differs from `digest`.
        """
        place, found = cls.identify(path)
        if digest is not None and found != digest:
            raise ArtifactError(
                f"{place} is another data set than expected: its digest begins with {found[:12]}, not {shown(digest[:12])};"
                f" give the right file, or {cls.__module__.partition('.')[0]}.{cls.__name__}.at(path) to use this one"
            )
        return cls(place.stem, found, str(place))

    @classmethod
    def of(cls, value: object) -> Self:
        """Return the reference that `value` gives: itself, a path, or a table of `digest` and `path` or `name`.

        Files store the last form.

        Raises:
            SettingsError: the value has none of these forms.
            ArtifactError: as `at`.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str | PathLike):
            return cls.at(value)
        texts = isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())
        if isinstance(value, Mapping) and texts and set(value) <= {"path", "name", "digest"}:
            if "path" in value:
                return cls.at(value["path"], value.get("digest"))
            if {"name", "digest"} == set(value):
                return cls(value["name"], value["digest"])
        raise SettingsError(
            f"{value!r} is not a data set; give the path of a file of recorded episodes, or a table of its path and digest"
        )

    def to_setting(self) -> dict[str, str]:
        """Return the table that files store: name and digest."""
        return {"name": self.name, "digest": self.digest}


def data_settings(config_type: type[object]) -> dict[str, type[DataReference]]:
    """Return name -> class of the settings of a config class that refer to recorded data."""
    return {
        name: kind
        for name, hint in get_type_hints(config_type).items()
        for kind in (hint, *get_args(hint))
        if isinstance(kind, type) and issubclass(kind, DataReference)
    }


def data_in(config_type: type[object], settings: Mapping[str, object]) -> dict[str, DataReference]:
    """Return name -> reference, for the `settings` of a config class that refer to data. Raises as `DataReference.of`."""
    given = {name: (kind, settings.get(name)) for name, kind in data_settings(config_type).items()}
    return {name: kind.of(value) for name, (kind, value) in given.items() if value is not None}


# Environment ids with arguments and wrappers, as one text: `HalfCheetah-v5?ctrl_cost_weight=0.2&wrapper=TimeFeature`.
#
# A wrapper may have arguments: `wrapper=my_module:Twice(by=5)`.
#
# Agent files, records of runs and suites store this text. The same environment can be made from it again.

WRAPPER = "wrapper"
"""Name of the argument that lists wrappers, innermost first."""
PLAIN = "/:,.+-_[]'\""
"""Characters of a value, in addition to letters and digits, that are not percent-encoded."""
LONGEST = 10_000
"""Largest number of characters of a wrapper with its arguments that are read."""
WORDS = {"true": True, "false": False, "none": None}
"""Words that stand for values in the arguments of a wrapper, in addition to Python's own."""


@attrs.frozen
class EnvironmentId:
    """A gymnasium id, the arguments of `gymnasium.make`, and the names of the wrappers, innermost first."""

    name: str
    kwargs: Mapping[str, object] = attrs.field(factory=dict)
    wrappers: tuple[str, ...] = ()

    def __str__(self) -> str:
        given = [f"{name}={_written(name, value)}" for name, value in self.kwargs.items()]
        given += [f"{WRAPPER}={quote(wrapper, safe=PLAIN + '()=', errors='replace')}" for wrapper in self.wrappers]
        return f"{self.name}?{'&'.join(given)}" if given else self.name

    def over(self, base: EnvironmentId) -> EnvironmentId:
        """Return this id applied to `base`: its arguments are added to or replace those of `base`, its wrappers come outside.

        An empty name stands for the name of `base`.
        """
        return EnvironmentId(self.name or base.name, {**base.kwargs, **self.kwargs}, base.wrappers + self.wrappers)


def environment_id(text: str) -> EnvironmentId:
    """Parse the id, arguments and wrappers in a text. Values are read as in `--set`: true, false, none, numbers, lists or text.

    >>> environment_id("Ant-v5?healthy_reward=0.5&wrapper=TimeFeature").kwargs
    {'healthy_reward': 0.5}

    Raises:
        SettingsError: an argument is not `name=value`, or is given twice.
    """
    name, _, rest = text.partition("?")
    kwargs, wrappers = dict[str, object](), list[str]()
    for part in filter(None, rest.split("&")):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            raise SettingsError(f"environment {text!r}: {part!r} is not NAME=VALUE, as in {name}?gravity=9.8")
        if key == WRAPPER:
            wrappers.append(unquote(value))
        elif key in kwargs:
            raise SettingsError(f"environment {text!r} has the argument {key!r} twice; leave one out")
        else:
            kwargs[key] = parse_value(unquote(value))
    return EnvironmentId(name, kwargs, tuple(wrappers))


@overload
def changed_environment(env: str, arguments: Iterable[str] | None, wrappers: Iterable[str] | None) -> str: ...


@overload
def changed_environment(
    env: str | None, arguments: Iterable[str] | None, wrappers: Iterable[str] | None
) -> str | None: ...


def changed_environment(env: str | None, arguments: Iterable[str] | None, wrappers: Iterable[str] | None) -> str | None:
    """Return `env` with the arguments (each `NAME=VALUE`) and wrappers of the command line added.

    If `env` is None, the text begins with `?`, and `rlsdk.runs.load_agent` adds it to the environment of an agent. None
    if there is nothing to add. The path of a file, as in `./my_env.py:MyEnv`, becomes its full path.

    Raises:
        SettingsError: an argument is not `NAME=VALUE`, or a wrapper is neither `NAME` nor `NAME(ARGUMENT=VALUE, ...)`.
    """
    kwargs = dict[str, object]()
    for argument in arguments or ():
        name, equals, value = argument.partition("=")
        if not equals or not name.strip().isidentifier() or name.strip() == WRAPPER:
            raise SettingsError(f"--env-kwargs {argument!r} is not NAME=VALUE, e.g. --env-kwargs gravity=9.8")
        kwargs[name.strip()] = parse_value(value.strip())
    for wrapper in wrappers or ():
        wrapper_call(wrapper)
    change = EnvironmentId("", kwargs, tuple(_located(wrapper, "(") for wrapper in wrappers or ()))
    base = None if env is None else _located(env, "?")
    if change == EnvironmentId(""):
        return base
    return str(change if base is None else change.over(environment_id(base)))


def _located(text: str, end: str) -> str:
    """Return the text of an environment or a wrapper with the full path of its file, if it is `FILE.py:NAME` up to `end`."""
    name, mark, rest = text.partition(end)
    place, colon, own = name.rpartition(":")
    if colon and place.endswith(".py"):  # another command may read it in another directory
        name = f"{os.path.abspath(place)}:{own}"
    return f"{name}{mark}{rest}"


def wrapper_call(text: str) -> tuple[str, dict[str, object]]:
    """Return the name of a wrapper and its arguments. Their values are literals; nothing is evaluated.

    >>> wrapper_call("my_module:Twice(by=5, names=['a'])")
    ('my_module:Twice', {'by': 5, 'names': ['a']})

    Raises:
        SettingsError: the text is neither `NAME` nor `NAME(ARGUMENT=VALUE, ...)` with literal values.
    """
    name, bracket, _ = text.partition("(")
    if not bracket:
        return text, {}
    try:
        # Parsed as a call of `f`, because the name of the wrapper may hold `:`, `.` and `/`.
        call = ast.parse(f"f{text[len(name) : LONGEST]}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError
        given = {each.arg: _literal(each.value) for each in call.keywords}
        if None in given or len(given) < len(call.keywords):  # **arguments, or one twice
            raise ValueError
        return name, {str(key): value for key, value in given.items()}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise SettingsError(
            f"wrapper {shown(text)} is neither NAME nor NAME(ARGUMENT=VALUE, ...) with numbers, 'text', true, false, none or"
            " lists of those, as in my_module:Twice(by=5)"
        ) from None


def _literal(node: ast.expr) -> object:
    if isinstance(node, ast.Name) and node.id in WORDS:
        return WORDS[node.id]
    value: object = ast.literal_eval(node)
    return value


def applied(change: str | None, env: str) -> str:
    """Return the environment id that results from `change`, a value of `changed_environment`, and `env`.

    If `change` begins with `?`, its arguments and wrappers are added to `env`; otherwise it replaces `env`.
    """
    if change is None or not change.startswith("?"):
        return change or env
    return str(environment_id(change).over(environment_id(_located(env, "?"))))


def text_of(name: str, kwargs: Mapping[str, object], wrappers: Iterable[object]) -> str | None:
    """Return the id `name` with more arguments and wrappers as text; None if text cannot represent one, such as a function."""
    chosen = tuple(wrappers)
    if not all(isinstance(wrapper, str) for wrapper in chosen):
        return None
    if WRAPPER in kwargs:  # as text, the argument would be read as a wrapper
        return None
    try:
        texts = tuple(_located(str(wrapper), "(") for wrapper in chosen)
        return str(EnvironmentId("", kwargs, texts).over(environment_id(_located(name, "?"))))
    except SettingsError:
        return None


def _written(name: str, value: object) -> str:
    """Return the text of a value. `parse_value` reads it back.

    Raises:
        SettingsError: the value has no text form.
    """
    text = "none" if value is None else value if isinstance(value, str) else _json(name, value)
    # The text "1" would be read as a number; in quotes it stays a text.
    if isinstance(value, str) and parse_value(text) != value:
        text = json.dumps(value, ensure_ascii=False)
    return quote(text, safe=PLAIN, errors="replace")


def _json(name: str, value: object) -> str:
    entries = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(entry, bool | int | float | str) for entry in entries) or not all(
        math.isfinite(entry) for entry in entries if isinstance(entry, float)
    ):
        raise SettingsError(
            f"the argument {name} = {value!r} of an environment must be a number, text, true, false, none or a list of those"
        )
    return json.dumps(value, ensure_ascii=False)
