"""Checks of the values that `step` returns. Callers skip them for values of the usual types, to save function calls."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from rlsdk.errors import EnvironmentFault, SettingsError, message_of, raise_fault, raise_stop, raised, shown

NUMBERS = frozenset((float, int, np.float64, np.float32, np.float16, np.int64, np.int32))
"""Types of rewards that `float` converts correctly, so that they need no check, except for ints above `LARGEST_INT`."""
LARGEST_INT = 2**127
FLOAT32_MAX = 3.4028234663852886e38
"""The largest number in float32, to which rewards and entries of `info` are converted."""
FLAGS = frozenset((bool, np.bool_))
"""Types of `terminated` and `truncated` that need no check."""
USUAL = frozenset(product(NUMBERS, FLAGS, FLAGS, (dict,)))
"""Types of (reward, terminated, truncated, info) that need no check: one look-up per step of an environment."""
STEP = "step must return (observation, reward, terminated, truncated, info)"
OLDER_API = {
    r"unexpected keyword argument '(seed|options)'": "write reset(self, *, seed=None, options=None), and in it"
    " super().reset(seed=seed)",
    r"values to unpack \(expected 5": STEP,
    r"values to unpack \(expected 2": "reset must return (observation, info)",
}
"""The message of a caller of an environment of an older API, as a pattern, and what to write."""
CALLERS = ("gymnasium", "rlsdk", "stable_baselines3")
"""Packages that call environments, or wrap them."""


def is_of_caller(error: BaseException) -> bool:
    """Whether the code that calls environments raised an error, not their own code or what that called."""
    places = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    # The innermost frame is the code that raised the error.
    return bool(places) and places[-1].partition(".")[0] in CALLERS


def hint_for(error: BaseException) -> str:
    """The fix for an error of those who call an environment of an older API, with a semicolon before it; otherwise ""."""
    found = (fix for pattern, fix in OLDER_API.items() if re.search(pattern, message_of(error)))
    return next((f"; {fix}" for fix in found), "") if is_of_caller(error) else ""


def number(value: object) -> float:
    """A reward as a float. It may be a number, or an array or tensor with one number.

    Raises:
        EnvironmentFault: it is something else, such as a text that looks like a number.
    """
    array = _one(value)
    if array is None or array.dtype.kind not in "biuf":
        # of an int of many digits the dtype is object
        raise EnvironmentFault(
            f"gave the reward {shown(value, 60)} ({type(value).__name__}); it must be a finite float32"
        )
    return float(array.item())


def flag(value: object, name: str) -> bool:
    """`terminated` or `truncated` as a bool. It may be a bool, 0 or 1, or an array or tensor with one of them.

    Raises:
        EnvironmentFault: it is something else, such as "False" or None, although Python could convert it to a bool.
    """
    array = _one(value)
    if array is None or array.dtype.kind not in "biu" or array.item() not in (0, 1):
        raise EnvironmentFault(f"gave {name} = {shown(value)} ({type(value).__name__}); it must be True or False")
    return bool(array.item())


def success(info: Mapping[str, object]) -> bool | None:
    """The entry `is_success` of an info as a bool; None if it is missing.

    Raises:
        EnvironmentFault: the entry is not a single number or bool.
    """
    value = info.get("is_success")
    if value is None or type(value) is bool:
        return value
    array = _one(value)
    if array is None or array.dtype.kind not in "biuf":
        raise EnvironmentFault(
            f"gave info['is_success'] = {shown(value)} ({type(value).__name__}); it must be True or False"
        )
    return bool(array.item())


def entry(info: Mapping[str, object], name: str) -> float:
    """The entry `name` of an info, which the algorithm declared, as a float.

    Raises:
        EnvironmentFault: the entry is missing, or it is not a finite float32.
    """
    if name not in info:
        raise EnvironmentFault(
            f"gave no info[{name!r}], which the algorithm needs at every step; the info has {shown(sorted(map(str, info)))}"
        )
    value = info[name]
    array = _one(value)
    found = float(array.item()) if array is not None and array.dtype.kind in "biuf" else math.nan
    # In this form NaN is refused as well.
    if not abs(found) <= FLOAT32_MAX:
        raise EnvironmentFault(
            f"gave info[{name!r}] = {shown(value)} ({type(value).__name__}); it must be a finite float32"
        )
    return found


def require_info(info: object) -> None:
    """Raises EnvironmentFault when `info` is not a mapping."""
    if not isinstance(info, Mapping):
        raise EnvironmentFault(f"gave info = {shown(info)} ({type(info).__name__}); it must be a dict")


def _one(value: object) -> NDArray[np.generic] | None:
    """The value as an array if it has exactly one entry, else None."""
    # `__array__` of a foreign object may raise any error.
    try:
        array = np.asarray(value)
    except Exception:
        return None
    return array if array.size == 1 and array.dtype != object else None


Environment = gymnasium.Env[object, object]
"""Any gymnasium environment."""
Indices = int | Sequence[int] | None
"""Which environments: one, several, or all (None)."""


def chosen(indices: Indices, count: int) -> list[int]:
    """The numbers of the selected environments, counted from 0. Negative indices count from the end.

    Raises:
        SettingsError: there is no environment of such a number.
    """
    wanted = range(count) if indices is None else [indices] if isinstance(indices, int) else list(indices)
    for index in wanted:
        if not isinstance(index, int) or not -count <= index < count:
            raise SettingsError(f"there is no environment number {index!r}; there are {count}, from 0 to {count - 1}")
    return [index % count for index in wanted]


def attribute_of(environment: object, name: str, default: object = None) -> object:
    """The attribute `name` of an environment; `default` if it has none.

    Raises:
        EnvironmentFault: a property or `__getattr__` of the environment raises another error than AttributeError.
    """
    try:
        return getattr(environment, name, default)
    except BaseException as error:
        raise_stop(error)
        raise unreadable(environment, name, error) from error


def unreadable(environment: object, name: str, error: BaseException) -> EnvironmentFault:
    """The error for an attribute whose reading raised another error than AttributeError."""
    what = raised(error, f"the attribute {name!r}")
    return EnvironmentFault(
        f"environment {type(environment).__name__} {what}; reading an attribute may raise nothing but AttributeError"
    )


def spec_of(environment: object) -> EnvSpec | None:
    """The registered spec of an environment; None if it has none, or something else in its place."""
    spec = attribute_of(environment, "spec")
    return spec if isinstance(spec, EnvSpec) else None


def name_of(environment: object) -> str:
    """The id of an environment, or the name of its class without wrappers."""
    spec = spec_of(environment)
    return type(attribute_of(environment, "unwrapped", environment)).__name__ if spec is None else spec.id


def named(environment: object) -> str:
    """The name of an environment for messages: its wrappers, and its id or class. Its own `__str__` is not used."""
    *wrappers, inner = layers_of(environment)
    names = [*(type(wrapper).__name__ for wrapper in wrappers), name_of(inner)]
    return "<".join(names) + ">" * len(wrappers)


def layers_of(environment: Any) -> Iterator[Any]:
    """Yield the outermost wrapper, each wrapper inside it, and the environment itself."""
    layer = environment
    yield layer
    # An environment may have an attribute `env` of its own, which is not a layer.
    while attribute_of(layer, "env", layer) is not layer and layer is not attribute_of(layer, "unwrapped", layer):
        layer = layer.env
        yield layer


def name_of_class(kind: type[object]) -> str:
    """The module and the qualified name of a class, joined by a dot."""
    return f"{kind.__module__}.{kind.__qualname__}"


def wrappers_of(environment: object) -> list[str]:
    """The names of the classes of the wrappers around an environment, outermost first, and of their base classes."""
    *wrappers, _ = layers_of(environment)
    return [name_of_class(kind) for wrapper in wrappers for kind in type(wrapper).__mro__ if kind is not object]


def read(environment: Environment, name: str) -> object:
    """The value of the attribute `name` of an environment or of a wrapper around it.

    Raises:
        EnvironmentFault: neither the environment nor a wrapper has the attribute.
    """
    try:
        value: object = environment.get_wrapper_attr(name)
    except AttributeError:
        raise EnvironmentFault(f"environment {named(environment)} has no attribute {name!r}") from None
    return value


def write(environment: object, name: str, value: object) -> None:
    """Set an attribute of the outermost wrapper that has it, or of the environment itself if no wrapper has it."""
    *wrappers, inner = layers_of(environment)
    # `hasattr` would also find what a wrapper only forwards from the environment.
    setattr(next((layer for layer in wrappers if name in vars(layer)), inner), name, value)


def time_limit(env: object) -> int | None:
    """The step at which an environment, or those of a vector environment, truncates episodes; None if it states none."""
    # The wrapper TimeLimit first: its argument may differ from the registered limit.
    limit, spec = _attribute(env, "_max_episode_steps"), _attribute(env, "spec")
    limit = getattr(spec, "max_episode_steps", None) if limit is None else limit
    return limit if isinstance(limit, int) else None


def _attribute(env: Any, name: str) -> object:
    """The attribute of an environment or its wrappers, or of the first of a vector environment; None if it has none."""
    try:
        return env.get_wrapper_attr(name) if isinstance(env, gymnasium.Env) else env.get_attr(name)[0]
    except Exception:
        # environments in other processes, and those of users, raise any error
        return None


def call_of(environment: Environment, name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """The result of the method `name` of an environment or of a wrapper around it.

    Raises:
        EnvironmentFault: the method does not exist, is not callable, or raises an error.
    """
    method = read(environment, name)
    if not callable(method):
        raise EnvironmentFault(f"{name!r} of environment {named(environment)} is not a method but {shown(method)}")
    try:
        answer: object = method(*args, **kwargs)
    except BaseException as error:
        raise_fault(error, f"environment {named(environment)}", name)
    return answer
