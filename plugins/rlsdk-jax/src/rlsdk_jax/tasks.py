"""Functional JAX environments behind one interface: gymnax's environments, and those of brax and MuJoCo Playground.

`Task` describes one environment as two functions of one row. `JaxVectorEnv` maps them over many rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np

from rlsdk.errors import (
    EnvironmentFault,
    RlsdkError,
    SettingsError,
    UnsupportedSpaceError,
    message_of,
    one_line,
    shown,
    suggest,
)
from rlsdk.runtime import pip_install
from rlsdk_jax.hooks import BRAX

Array: TypeAlias = Any  # a jax.Array; JAX may be missing, so its types cannot be used
Tree: TypeAlias = Any  # arrays in dicts, tuples and other classes that JAX knows
Settings: TypeAlias = Mapping[str, object]
GymSpace: TypeAlias = "gymnasium.Space[Any]"
UNLIMITED = 2**30
"""A time limit that no episode reaches, and that fits into int32."""
BRAX_STEPS = 1000
"""The time limit of brax's own trainers, for environments of its interface without one."""
BATCHED = ("AutoReset", "Vmap")
"""Parts of the names of wrappers that step several rows or begin episodes, which `JaxVectorEnv` does itself."""


class Moved(NamedTuple):
    """The result of one step of one row."""

    observation: Tree
    state: Tree
    reward: Array  # []
    terminated: Array  # bool []
    truncated: Array  # bool []
    info: Mapping[str, Array]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Task:
    """An environment as functions of one row, which JAX can trace. They begin no new episodes by themselves."""

    name: str
    observation_space: GymSpace
    action_space: GymSpace
    begin: Callable[[Array], tuple[Tree, Tree]]
    """Key -> first observation and first state."""
    advance: Callable[[Array, Tree, Array], Moved]
    """Key, state, action -> step. Actions of a Box are inside its bounds."""
    limit: int | None
    """The step that truncates an episode; None: none but what `advance` reports."""


# --- packages -------------------------------------------------------------------------------------------------------

_PROCESSES: list[int] = []
"""The process that first used JAX here."""
MEMORY = "XLA_PYTHON_CLIENT_PREALLOCATE"


def imported(name: str) -> ModuleType:
    """Import JAX, or a package that uses it, without the text that it prints.

    Raises:
        EnvironmentFault: it is not installed, lacks another package, or this process was forked from one that uses JAX.
    """
    if _PROCESSES and _PROCESSES[0] != os.getpid():
        raise EnvironmentFault(
            "JAX cannot be used in a forked process; step all copies with vectorization='jax', or make processes with"
            " start_method='spawn'"
        )
    os.environ.setdefault(MEMORY, "false")  # else JAX takes most of the GPU memory that torch needs, too
    try:
        with quiet():
            found = import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name in (package, "jax", "jaxlib"):
            extra = package if package in ("gymnax", "brax") else "jax"
            fix = pip_install(f"rlsdk-jax[{extra}]")
            raise EnvironmentFault(f"{error.name} is not installed; install it: {fix}") from None
        raise EnvironmentFault(
            f"{package} needs {error.name}, which is not installed: {pip_install(str(error.name))}"
        ) from None
    _PROCESSES[:] = [os.getpid()]
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard what packages print and warn of when they are imported, such as absent packages that they could use."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


# --- environments ---------------------------------------------------------------------------------------------------


def task_of(source: object, settings: Settings, limit: int | None = None) -> Task:
    """The task of an environment.

    Args:
        source: an id (`gymnax/CartPole-v1`, `brax/reacher`), an environment with the interface of gymnax or brax, or a class or
            function that makes one.
        settings: arguments of the environment, or fields of the parameters of one of gymnax.
        limit: the step that truncates an episode; None: the environment's own limit, with brax's interface 1000.

    Raises:
        EnvironmentFault: the package is missing, has no such environment, or cannot make it; `source` has another interface.
        SettingsError: a setting is unknown, or the limit is not a positive whole number.
        UnsupportedSpaceError: a space has no counterpart in gymnasium.
    """
    require_limit(limit)
    imported("jax")
    if isinstance(source, str):
        made, settings = _named(source, settings)
        name = source.partition("?")[0]
    elif isinstance(source, type) or not (hasattr(source, "reset") or hasattr(source, "default_params")):
        made, name = _made(source, settings, shown(source, 60)), getattr(source, "__name__", shown(source, 60))
        settings = {}
    else:
        made, name = source, type(source).__name__
    _require_rows(made, name)
    if hasattr(made, "default_params"):
        return _gymnax_task(made, name, settings, limit)
    if settings:
        raise SettingsError(
            f"environment {name!r} exists, so it takes no {', '.join(settings)}; set them when it is made"
        )
    return _brax_task(made, name, limit)


def require_limit(limit: object) -> None:
    """Raises SettingsError unless a time limit is None or a positive whole number."""
    if limit is not None and (type(limit) is not int or not 0 < limit <= UNLIMITED):
        raise SettingsError(f"max_episode_steps = {shown(limit, 40)} must be a whole number from 1 to {UNLIMITED:,}")


def _named(identity: str, settings: Settings) -> tuple[Any, Settings]:
    """(the environment of an id, the settings that it did not take)."""
    namespace, _, name = identity.partition("/")
    if namespace == "gymnax":
        package = imported("gymnax")
        _require_known(name, package.registered_envs, "gymnax")
        fields = _fields(_made(package.make, {"env_id": name}, identity)[1])
        own = {key: value for key, value in settings.items() if key not in fields}
        made, _ = _made(package.make, {"env_id": name, **own}, identity, fields)
        return made, {key: value for key, value in settings.items() if key in fields}
    if namespace == "brax":
        package = imported("brax.envs")

        def of_brax(**own: object) -> Any:
            try:
                return package.get_environment(name, **own)
            except KeyError as error:
                if error.args == (name,):  # brax has no public list of its environments, which programs may extend
                    _require_known(name, {*BRAX} - {name}, "brax")
                raise

        with quiet():
            return _made(of_brax, settings, identity), {}
    raise EnvironmentFault(
        f"{shown(identity, 100)} is not an environment in JAX; give an id such as 'gymnax/CartPole-v1' or 'brax/reacher', or"
        " an environment with the interface of gymnax or brax"
    )


def _require_known(name: str, known: Any, package: str) -> None:
    if name not in known:
        raise EnvironmentFault(f"{package} has no environment {shown(name, 60)}; {suggest(name, known)}")


def _made(make: Any, settings: Settings, name: str, fields: tuple[str, ...] = ()) -> Any:
    """Call a function or class that makes an environment. Its error becomes one line; `fields` are further names it takes."""
    if not callable(make):
        raise EnvironmentFault(f"{name} is neither an id of gymnax or brax nor an environment with their interface")
    try:
        return make(**settings)
    except RlsdkError:
        raise
    except TypeError as error:
        hint = f"; parameters: {', '.join(fields)}" if fields else ""
        raise SettingsError(f"environment {name} cannot be made: {one_line(message_of(error), 200)}{hint}") from None
    except Exception as error:  # code of the environment may raise any error
        raise EnvironmentFault(f"environment {name} cannot be made: {one_line(message_of(error), 200)}") from error


def _fields(params: object) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(params)) if dataclasses.is_dataclass(params) else ()


def _require_rows(env: Any, name: str) -> None:
    """Raises EnvironmentFault unless `env` steps one row and begins no episodes by itself."""
    if hasattr(env, "default_params"):
        # a wrapper of gymnax passes unknown names on, so its own changes would be skipped
        if not hasattr(type(env), "step_env") or not hasattr(type(env), "reset_env"):
            raise EnvironmentFault(
                f"environment {name!r} lacks its own step_env and reset_env; give the environment inside its wrappers"
            )
        return
    layer, seen = env, 0
    while layer is not None and seen < len(BATCHED) * 50:  # attributes of other packages may lead in a circle
        if any(part in type(layer).__name__ for part in BATCHED):
            raise EnvironmentFault(
                f"environment {name!r} is inside {type(layer).__name__}; give the environment without it: rlsdk steps all rows"
                " and begins episodes itself"
            )
        layer, seen = vars(layer).get("env") if hasattr(layer, "__dict__") else None, seen + 1
    if missing := [each for each in ("reset", "step", "action_size") if not hasattr(env, each)]:
        raise EnvironmentFault(
            f"environment {name!r} lacks {', '.join(missing)}; it needs the interface of gymnax (reset_env, step_env,"
            " default_params) or of brax (reset, step, action_size)"
        )


# --- gymnax ---------------------------------------------------------------------------------------------------------


def _gymnax_task(env: Any, name: str, settings: Settings, limit: int | None) -> Task:
    """The task of an environment with gymnax's interface.

    Since version 1.0, `step_env` reports terminations, and `is_truncated` the time limit. Environments written for earlier
    versions report both as one flag. They are asked once more with a limit that is never reached.
    """
    params = _changed(env.default_params, settings, name)
    observation = gym_space(env.observation_space(params), "observation")
    action_space = gym_space(env.action_space(params), "action")
    is_split = hasattr(env, "is_truncated")
    endless = params
    if not is_split and "max_steps_in_episode" in _fields(params):
        endless = params.replace(max_steps_in_episode=UNLIMITED)

    def begin(key: Array) -> tuple[Tree, Tree]:
        first, state = env.reset_env(key, params)
        return first, state

    def advance(key: Array, state: Tree, action: Array) -> Moved:
        seen, after, reward, done, info = env.step_env(key, state, action, params)
        if is_split:
            return Moved(seen, after, reward, done, env.is_truncated(after, params), info)
        terminated = env.is_terminal(after, endless) if hasattr(env, "is_terminal") else done
        return Moved(seen, after, reward, done & terminated, done & ~terminated, info)

    return Task(name, observation, action_space, begin, advance, limit)


def _changed(params: Any, settings: Settings, name: str) -> Any:
    """Parameters of gymnax with other values. Raises SettingsError for a name or a type that they do not have."""
    fields = _fields(params)
    for key, value in settings.items():
        if key not in fields:
            raise SettingsError(f"environment {name!r} has no parameter {key!r}; {suggest(key, fields)}")
        if isinstance(value, str) or (type(getattr(params, key)) is int and type(value) is not int):
            raise SettingsError(
                f"environment {name!r}: {key} = {shown(value, 40)} must be a number like {shown(getattr(params, key), 40)}"
            )
    return params.replace(**settings) if settings else params


def gym_space(space: Any, path: str) -> GymSpace:
    """The gymnasium space for a space of gymnax, whose classes are known by their names; spaces of gymnasium pass.

    Raises:
        UnsupportedSpaceError: it is of another kind.
    """
    kind = type(space).__name__
    if isinstance(space, gymnasium.Space):
        return space
    if kind == "Discrete" and hasattr(space, "n"):
        return gymnasium.spaces.Discrete(int(space.n))
    if kind == "Box" and hasattr(space, "low"):
        dtype = np.dtype(space.dtype)
        if dtype.kind not in "fiub":
            raise UnsupportedSpaceError(
                f"{path} is a Box of {dtype}; rlsdk takes numbers: float32, int32, uint8 or bool"
            )
        dtype = np.dtype(np.uint8) if dtype.kind == "b" else dtype
        return gymnasium.spaces.Box(*_bounds(space, dtype), tuple(space.shape), dtype.type)
    if kind == "Dict":
        return gymnasium.spaces.Dict({key: gym_space(child, f"{path}[{key!r}]") for key, child in space.spaces.items()})
    if kind == "Tuple":
        return gymnasium.spaces.Tuple([gym_space(child, f"{path}[{i}]") for i, child in enumerate(space.spaces)])
    raise UnsupportedSpaceError(f"{path} is {shown(space, 60)}; rlsdk takes Box, Discrete, Dict and Tuple of gymnax")


def _bounds(space: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The bounds of a Box of gymnax, in the shape and the range of its dtype."""
    info = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float64), tuple(space.shape)) for bound in (space.low, space.high)
    )
    if dtype.kind == "f":
        return low.astype(dtype), high.astype(dtype)
    return low.clip(info.min, info.max).astype(dtype), high.clip(info.min, info.max).astype(dtype)


# --- brax and MuJoCo Playground -------------------------------------------------------------------------------------


def _brax_task(env: Any, name: str, limit: int | None) -> Task:
    """The task of an environment with brax's interface, whose states hold observation, reward and flag."""
    jax: Any = sys.modules["jax"]
    first = traced(lambda: jax.eval_shape(env.reset, jax.random.PRNGKey(0)), name)
    if missing := [each for each in ("obs", "reward", "done", "info", "metrics") if not hasattr(first, each)]:
        raise EnvironmentFault(f"environment {name!r}: the state that reset returns lacks {', '.join(missing)}")
    limit_inside = "truncation" in first.info  # brax's EpisodeWrapper
    if limit is None and not limit_inside:
        limit = int(getattr(getattr(env, "_config", None), "episode_length", BRAX_STEPS))  # of MuJoCo Playground
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (int(env.action_size),), np.float32)

    def begin(key: Array) -> tuple[Tree, Tree]:
        state = env.reset(key)
        return state.obs, state

    def advance(key: Array, state: Tree, action: Array) -> Moved:
        after = env.step(state, action)
        done = after.done > 0
        truncated = done & (after.info["truncation"] > 0) if limit_inside else done & False
        return Moved(after.obs, after, after.reward, done & ~truncated, truncated, {**after.info, **after.metrics})

    return Task(name, _observed(first.obs, name), action_space, begin, advance, limit)


def called(call: Callable[[], Any], where: str, longest: int = 300) -> Any:
    """The result of `call`, which calls functions of an environment. Errors of theirs and of JAX, such as too little memory,
    become an EnvironmentFault. `where` begins the message, of which `longest` characters are those of the error."""
    try:
        return call()
    except RlsdkError:
        raise
    except Exception as error:  # code of the environment may raise any error
        text = one_line(message_of(error), longest)
        raise EnvironmentFault(f"{where}: {type(error).__name__}: {text}") from error


def traced(call: Callable[[], Any], name: str) -> Any:
    """The result of `call`, in which JAX traces functions of an environment. Its error becomes an EnvironmentFault."""
    return called(call, f"environment {name!r} cannot be traced by JAX", 200)


def _observed(example: Any, name: str) -> GymSpace:
    """The space of observations with the shapes and dtypes of `example`: unbounded, images from 0 to 255."""
    if isinstance(example, Mapping):
        return gymnasium.spaces.Dict({key: _observed(child, name) for key, child in sorted(example.items())})
    shape, dtype = tuple(example.shape), np.dtype(example.dtype)
    if dtype == np.uint8:
        return gymnasium.spaces.Box(0, 255, shape, np.uint8)
    if dtype.kind != "f":
        raise UnsupportedSpaceError(
            f"environment {name!r} gives observations of {dtype}; rlsdk takes float32 and uint8 here"
        )
    return gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)


# --- arrays in files --------------------------------------------------------------------------------------------------


def is_key(jax: Any, leaf: Any) -> bool:
    """Whether an array holds random keys of JAX's own dtype, which is not a number."""
    return bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def stored(jax: Any, leaf: Array) -> Any:
    """An array for a file: keys as numbers, and dtypes that torch cannot store as signed integers of their size."""
    value = np.asarray(jax.random.key_data(leaf) if is_key(jax, leaf) else leaf)
    is_known = value.dtype.kind in "bif" or value.dtype == np.uint8
    return np.array(value if is_known else value.view(f"i{value.dtype.itemsize}"))


def restored(jax: Any, example: Array, value: Any) -> Array:
    """The array that `stored` made of one like `example`."""
    if is_key(jax, example):
        return jax.random.wrap_key_data(jax.numpy.asarray(value.view("u4")), impl=jax.random.key_impl(example))
    return jax.numpy.asarray(value.view(np.dtype(example.dtype)))
