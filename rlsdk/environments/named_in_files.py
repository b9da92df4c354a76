"""Which environments a file may name: agent files, records of runs, suites and data sets may come from someone else.

The rule is closed: what it does not know is refused. It accepts the plain id of a registered environment, known arguments of
that environment, and wrappers of rlsdk and gymnasium. Values are numbers, true, false, none and lists of numbers. A text can
name a module, another environment, a file or an address, so only the texts in `TEXTS` and the defaults are accepted.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from rlsdk.environments.registration import is_of_package
from rlsdk.environments.wrapper_names import known_wrapper
from rlsdk.errors import PluginError, SettingsError, shown
from rlsdk.settings.environment_id import environment_id, wrapper_call

PLAIN_ID = re.compile(r"(?:[\w-]+/)?\w[\w.-]*", re.ASCII)
TEXTS = {
    "render_mode": frozenset({"human", "rgb_array", "rgb_array_list", "ansi", "ansi_list", "depth_array"}),
    "map_name": frozenset({"4x4", "8x8"}),
    "obs_type": frozenset({"rgb", "grayscale", "ram"}),
}
"""Argument -> the texts that a file may give it. The first is of all environments, the others of toy text and of ale-py."""
OF_MAKE = {"max_episode_steps": None, "disable_env_checker": None, "render_mode": None}
"""Arguments of `gymnasium.make` itself, and their defaults."""
INNER = {"task": "{}", "game": "ALE/{}-v5"}
"""Argument of ids `rlsdk/...` -> the id inside. The other arguments of such an environment are for that one."""


def refusal(env: str) -> str | None:
    """Return why a file may not name the environment id `env`; None if it may.

    The module of a registered environment may be imported, because its arguments are those of its class.

    Raises:
        SettingsError: `env` is not an environment id.
    """
    chosen = environment_id(env)
    if not PLAIN_ID.fullmatch(chosen.name):
        return f"{shown(chosen.name, 100)} is not the id of a registered environment"
    if chosen.kwargs and (why := _of_arguments(chosen.kwargs, _arguments(chosen.name), chosen.name)):
        return why
    return next(filter(None, map(_of_wrapper, chosen.wrappers)), None)


def _of_wrapper(text: str) -> str | None:
    """Return why a file may not name this wrapper; None if it may."""
    try:
        name, kwargs = wrapper_call(text)
        return _of_arguments(kwargs, _parameters(known_wrapper(name)), name)
    except (SettingsError, ImportError):
        return f"{shown(text, 100)} is not a wrapper of rlsdk or gymnasium"


def _of_arguments(given: Mapping[str, object], known: Mapping[str, object] | None, of: str) -> str | None:
    """Return why a file may not give these arguments; None if it may. `known`: argument -> default; None if it is not known."""
    for name, value in given.items():
        if known is not None and name not in known:
            return f"{name!r} is not a known argument of {of}"
        default = (known or {}).get(name)
        is_known = isinstance(value, str) and (
            value in TEXTS.get(name, ()) or (isinstance(default, str) and value == default)
        )
        if not _is_plain(value) and not is_known:
            return f"the argument {name} = {shown(value, 100)} of {of} is not a number, true, false, none or a list of numbers"
    return None


def _is_plain(value: object) -> bool:
    entries = value if isinstance(value, list | tuple) else [value]
    return value is None or all(isinstance(entry, bool | int | float) for entry in entries)


def _arguments(identity: str) -> dict[str, object] | None:
    """Argument -> default of a registered environment; empty if none of that id is registered.

    None if the package of the environment cannot be imported. It cannot be made either then, and that error names the reason.
    """
    try:
        is_of_package(identity)
    except PluginError:
        return None
    spec = gymnasium.registry.get(identity)
    if spec is None or spec.entry_point is None:
        return {}
    try:
        make: Any = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    except Exception:  # code of the package may raise any error
        return None
    known = {**OF_MAKE, **_parameters(make), **spec.kwargs}
    inner = [text.format(spec.kwargs[name]) for name, text in INNER.items() if name in spec.kwargs]
    if not identity.startswith("rlsdk/") or not inner:
        return known
    below = _arguments(inner[0])
    return {**below, **known} if below else None


def _parameters(make: Callable[..., Any]) -> dict[str, object]:
    """Parameter -> default of a function, or of a class and the classes it derives from."""
    sources = inspect.getmro(make) if isinstance(make, type) else (make,)
    found: dict[str, object] = {}
    for source in reversed(sources):
        try:
            parameters = inspect.signature(source.__init__ if isinstance(source, type) else source).parameters  # type: ignore[misc]
        except (TypeError, ValueError):  # of code that was compiled, or no function
            continue
        named = (each for each in parameters.values() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))
        found |= {each.name: each.default for each in named}
    return found
