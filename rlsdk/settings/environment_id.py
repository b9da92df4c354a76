"""Environment ids with arguments and wrappers, as one text: `HalfCheetah-v5?ctrl_cost_weight=0.2&wrapper=TimeFeature`.

Agent files, records of runs and suites store this text. The same environment can be made from it again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

import attrs

from rlsdk.errors import SettingsError
from rlsdk.settings.load import parse_value

WRAPPER = "wrapper"
"""Name of the argument that lists wrappers, innermost first."""
PLAIN = "/:,.+-_[]'\""
"""Characters of a value, in addition to letters and digits, that are not percent-encoded."""


@attrs.frozen
class EnvironmentId:
    """A gymnasium id, the arguments of `gymnasium.make`, and the names of the wrappers, innermost first."""

    name: str
    kwargs: Mapping[str, object] = attrs.field(factory=dict)
    wrappers: tuple[str, ...] = ()

    def __str__(self) -> str:
        given = [f"{name}={_written(name, value)}" for name, value in self.kwargs.items()]
        given += [f"{WRAPPER}={quote(wrapper, safe=PLAIN, errors='replace')}" for wrapper in self.wrappers]
        return f"{self.name}?{'&'.join(given)}" if given else self.name

    def over(self, base: EnvironmentId) -> EnvironmentId:
        """Return this id applied to `base`: its arguments are added to or replace those of `base`, its wrappers come outside.

        An empty name stands for the name of `base`.
        """
        return EnvironmentId(self.name or base.name, {**base.kwargs, **self.kwargs}, base.wrappers + self.wrappers)

    @property
    def reads_more(self) -> bool:
        """Whether making this environment may import a module or read a file that the id names.

        True if the id or a wrapper contains `:`, or if an argument is text with `/`, `\\` or `~`.
        """
        texts = [text for value in self.kwargs.values() for text in _texts(value)]
        return ":" in "".join((self.name, *self.wrappers)) or any(set(text) & set("/\\~") for text in texts)


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


def changed_environment(env: str | None, arguments: Iterable[str] | None, wrappers: Iterable[str] | None) -> str | None:
    """Return `env` with the arguments (each `NAME=VALUE`) and wrappers of the command line added.

    If `env` is None, the text begins with `?`, and `applied` adds it to another id. None if there is nothing to add.

    Raises:
        SettingsError: an argument is not `NAME=VALUE`.
    """
    kwargs = dict[str, object]()
    for argument in arguments or ():
        name, equals, value = argument.partition("=")
        if not equals or not name.strip().isidentifier() or name.strip() == WRAPPER:
            raise SettingsError(f"--env-kwargs {argument!r} is not NAME=VALUE, e.g. --env-kwargs gravity=9.8")
        kwargs[name.strip()] = parse_value(value.strip())
    change = EnvironmentId("", kwargs, tuple(wrappers or ()))
    if change == EnvironmentId(""):
        return env
    return str(change if env is None else change.over(environment_id(env)))


def applied(change: str | None, env: str) -> str:
    """Return the environment id that results from `change`, a value of `changed_environment`, and `env`.

    If `change` begins with `?`, its arguments and wrappers are added to `env`; otherwise it replaces `env`.
    """
    if change is None or not change.startswith("?"):
        return change or env
    return str(environment_id(change).over(environment_id(env)))


def text_of(name: str, kwargs: Mapping[str, object], wrappers: Iterable[object]) -> str | None:
    """Return the id `name` with more arguments and wrappers as text; None if text cannot represent one, such as a function."""
    chosen = tuple(wrappers)
    if not all(isinstance(wrapper, str) for wrapper in chosen):
        return None
    if WRAPPER in kwargs:  # as text, the argument would be read as a wrapper
        return None
    try:
        return str(EnvironmentId("", kwargs, tuple(map(str, chosen))).over(environment_id(name)))
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


def _texts(value: object) -> list[str]:
    return [entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, str)]
