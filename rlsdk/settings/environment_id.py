"""Environment ids with arguments and wrappers, as one text: `HalfCheetah-v5?ctrl_cost_weight=0.2&wrapper=TimeFeature`.

A wrapper may have arguments: `wrapper=my_module:Twice(by=5)`.

Agent files, records of runs and suites store this text. The same environment can be made from it again.
"""

from __future__ import annotations

import ast
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import overload
from urllib.parse import quote, unquote

import attrs

from rlsdk.errors import SettingsError, shown
from rlsdk.settings.load import parse_value

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

    If `env` is None, the text begins with `?`, and `rlsdk.experiments.load_agent` adds it to the environment of an agent. None
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
    change = EnvironmentId("", kwargs, tuple(map(_located_wrapper, wrappers or ())))
    base = None if env is None else located_id(env)
    if change == EnvironmentId(""):
        return base
    return str(change if base is None else change.over(environment_id(base)))


def located_id(env: str) -> str:
    """Return an environment id with the full path of its file, if it is `FILE.py:NAME`."""
    name, question, rest = env.partition("?")
    return f"{_located(name)}{question}{rest}"


def _located_wrapper(text: str) -> str:
    name, bracket, rest = text.partition("(")
    return f"{_located(name)}{bracket}{rest}"


def _located(name: str) -> str:
    place, colon, own = name.rpartition(":")  # another command may read it in another directory
    return f"{os.path.abspath(place)}:{own}" if colon and place.endswith(".py") else name


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
    return str(environment_id(change).over(environment_id(located_id(env))))


def text_of(name: str, kwargs: Mapping[str, object], wrappers: Iterable[object]) -> str | None:
    """Return the id `name` with more arguments and wrappers as text; None if text cannot represent one, such as a function."""
    chosen = tuple(wrappers)
    if not all(isinstance(wrapper, str) for wrapper in chosen):
        return None
    if WRAPPER in kwargs:  # as text, the argument would be read as a wrapper
        return None
    try:
        texts = tuple(_located_wrapper(str(wrapper)) for wrapper in chosen)
        return str(EnvironmentId("", kwargs, texts).over(environment_id(located_id(name))))
    except SettingsError:
        return None


def _written(name: str, value: object) -> str:
    """Return the text of a value. `parse_value` reads it back.

    Raises:
        SettingsError: the value has no text form.
    """
    text = "none" if value is None else value if isinstance(value, str) else _json(name, value)
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
