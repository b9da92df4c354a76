"""Wrappers: records of episodes, checks of numbers, the time as a feature, masks of velocities and of actions."""

from __future__ import annotations

import contextlib
import csv
import inspect
import io
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeGuard, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from rlsdk.environments import name_of, named
from rlsdk.errors import (
    ArtifactError,
    EnvironmentFault,
    MaskError,
    SettingsError,
    UnsupportedSpaceError,
    UsageError,
    require_file_name,
    shown,
)
from rlsdk.runtime import append_whole, pip_install, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "ActionMasker",
    "CheckNan",
    "CombinedActions",
    "MaskVelocity",
    "Monitor",
    "TimeFeature",
    "load_results",
    "plot_results",
    "ts2xy",
]

SUFFIX = "monitor.csv"
COLUMNS = ("r", "l", "t")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"cannot write {path}: {error.strerror or error}; choose a writable place with free space"
        ) from None


def _row(values: Iterable[object]) -> str:
    """One line of a table in CSV, with its end."""
    line = io.StringIO(newline="")
    csv.writer(line).writerow(values)
    return line.getvalue()


class Monitor(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """Adds `info["episode"] = {"r": return, "l": length, "t": seconds}` at an episode's end, and a row to `filename`.

    The file begins with a comment line of JSON (`t_start`, `env_id`), then a header. Rows are appended to an existing file,
    unless `override_existing`. With `allow_early_resets=False`, a reset in the middle of an episode raises UsageError.
    `reset_keywords` are names of arguments that each call of `reset` must have. `info_keywords` are names of entries in the
    info of the last step. Both are written to the rows.
    """

    def __init__(
        self,
        env: gymnasium.Env[object, object],
        filename: str | Path | None = None,
        allow_early_resets: bool = True,
        reset_keywords: Sequence[str] = (),
        info_keywords: Sequence[str] = (),
        override_existing: bool = False,
    ) -> None:
        arguments: dict[str, Any] = {"allow_early_resets": allow_early_resets, "info_keywords": info_keywords}
        arguments |= {"reset_keywords": reset_keywords, "override_existing": override_existing}
        RecordConstructorArgs.__init__(self, filename=filename, **arguments)
        gymnasium.Wrapper.__init__(self, env)
        self.allow_early_resets, self.info_keywords = allow_early_resets, tuple(info_keywords)
        self.reset_keywords, self._reset_values = tuple(reset_keywords), dict[str, object]()
        self.path = None if filename is None else _path(Path(filename))
        self._began, self._rewards = time.time(), list[float]()
        self._over, self._episodes, self._total = True, list[dict[str, float]](), 0
        if self.path is not None:
            with _writing(self.path):
                self._prepare(self.path, override_existing)

    def _prepare(self, path: Path, override: bool) -> None:
        columns = [*COLUMNS, *self.reset_keywords, *self.info_keywords]
        if path.exists() and not override:
            with path.open(newline="", encoding="utf-8", errors="replace") as stream:
                context, header = stream.readline(), next(csv.reader(stream), [])
            if header != columns:
                raise SettingsError(
                    f"{path} has the columns {header}, this monitor writes {columns}; choose another file"
                )
            self._began = _began(context, path)
            return
        context = json.dumps({"t_start": self._began, "env_id": name_of(self.env)})
        write_whole(path, f"#{context}\n{_row(columns)}".encode())

    def reset(self, **kwargs: Any) -> tuple[object, dict[str, object]]:
        if not self.allow_early_resets and not self._over and self._rewards:
            raise UsageError("the episode is not over; play it to its end, or pass allow_early_resets=True")
        if missing := [name for name in self.reset_keywords if name not in kwargs]:
            raise UsageError(f"reset needs {missing}, which reset_keywords names")
        self._reset_values = {name: kwargs[name] for name in self.reset_keywords}
        self._rewards, self._over = [], False
        return self.env.reset(**{name: value for name, value in kwargs.items() if name not in self.reset_keywords})

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        if self._over:
            raise UsageError("the episode is over; call reset before step")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._rewards.append(float(reward) if isinstance(reward, float | np.floating) else self._number(reward))
        self._total += 1
        if terminated or truncated:
            self._over = True
            if not isinstance(info, Mapping):
                raise EnvironmentFault(
                    f"environment {named(self.env)} gave info = {shown(info)} ({type(info).__name__}); it must be a dict"
                )
            info = {**info, "episode": self._finish(info)}
        return observation, reward, terminated, truncated, info

    def _number(self, reward: object) -> float:
        """A reward that is an int, or an array or tensor with one number.

        Raises:
            EnvironmentFault: it is something else, such as a text.
        """
        with contextlib.suppress(Exception):  # numpy raises many errors for objects other than numbers
            array = np.asarray(reward)
            if array.size == 1 and array.dtype.kind in "biuf":  # the dtype of an int of many digits is object
                return float(array.item())
        raise EnvironmentFault(
            f"environment {named(self.env)} gave the reward {shown(reward, 60)} ({type(reward).__name__}); it must be a finite"
            " float32"
        )

    def _finish(self, info: dict[str, object]) -> dict[str, object]:
        seconds = round(time.time() - self._began, 6)
        result = {"r": round(sum(self._rewards), 6), "l": len(self._rewards), "t": seconds}
        if missing := [name for name in self.info_keywords if name not in info]:
            raise SettingsError(
                f"info of the last step lacks {missing}, which info_keywords names; it has {sorted(info)}"
            )
        self._episodes.append(result)
        row = {**result, **self._reset_values, **{name: info[name] for name in self.info_keywords}}
        if self.path is not None:
            with _writing(self.path):
                append_whole(self.path, _row(row.values()).encode())
        return row

    def get_total_steps(self) -> int:
        """The number of steps over all episodes."""
        return self._total

    def get_episode_rewards(self) -> list[float]:
        """The return of every finished episode."""
        return [row["r"] for row in self._episodes]

    def get_episode_lengths(self) -> list[int]:
        """The number of steps of every finished episode."""
        return [int(row["l"]) for row in self._episodes]

    def get_episode_times(self) -> list[float]:
        """The time at which every finished episode ended, in seconds since the monitor was made or its file was started."""
        return [row["t"] for row in self._episodes]

    def get_state(self) -> dict[str, object]:
        """The state of the running episode and the number of steps. It has neither the finished episodes nor the file."""
        return {"rewards": list(self._rewards), "over": self._over, "total": self._total}

    def set_state(self, state: Any) -> None:
        """Restore a state from `get_state`."""
        self._rewards = [float(reward) for reward in state["rewards"]]
        self._over, self._total = bool(state["over"]), int(state["total"])


def _began(context: str, path: Path) -> float:
    """When the monitor of an existing file began, from its first line.

    Raises:
        SettingsError: no monitor wrote it.
    """
    try:
        return float(json.loads(context[1:])["t_start"])
    except (ValueError, KeyError, TypeError):
        raise SettingsError(
            f"{path} was not written by a monitor: its first line has no JSON with t_start; choose another file, or pass"
            " override_existing=True"
        ) from None


def _path(name: Path) -> Path:
    """The path of the monitor file: folder/monitor.csv for a folder, else `name` with the suffix .monitor.csv if missing."""
    require_file_name(name)
    if name.is_dir():
        return name / SUFFIX
    return name if name.name.endswith(SUFFIX) else name.with_name(f"{name.name}.{SUFFIX}")


AXES = {"timesteps": "environment steps", "episodes": "episodes", "walltime_hrs": "hours"}
WINDOW = 100
"""The number of episodes in the moving average of a curve."""


def load_results(folder: str | Path) -> dict[str, list[float]]:
    """The episodes of all monitor files in a folder, in the order in which they ended.

    The columns are `r` (return), `l` (number of steps) and `t` (seconds since the first monitor began).

    Raises:
        SettingsError: the folder has no monitor file, or a file is damaged.
    """
    paths = sorted(Path(folder).glob(f"*{SUFFIX}"))
    if not paths:
        raise SettingsError(f"{folder} holds no *{SUFFIX} file")
    rows: list[tuple[float, float, float]] = []
    first = math.inf
    for path in paths:
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                start = float(json.loads(stream.readline()[1:])["t_start"])
                first = min(first, start)
                rows += [(start + float(row["t"]), float(row["r"]), float(row["l"])) for row in csv.DictReader(stream)]
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{path} is not a monitor file: {type(error).__name__}: {error}") from None
    rows.sort()
    return {"r": [r for _, r, _ in rows], "l": [length for *_, length in rows], "t": [t - first for t, *_ in rows]}


def ts2xy(
    results: Mapping[str, Sequence[float]], x_axis: str = "timesteps"
) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
    """(x [E], return [E]) of E episodes from `load_results`.

    `x_axis`: the unit of x, `timesteps`, `episodes` or `walltime_hrs`.

    Raises:
        SettingsError: `x_axis` is another unit.
    """
    returns = np.asarray(results["r"], np.float64)
    if x_axis == "timesteps":
        return np.cumsum(np.asarray(results["l"], np.float64)).astype(np.int64), returns
    if x_axis == "episodes":
        return np.arange(len(returns)), returns
    if x_axis == "walltime_hrs":
        return np.asarray(results["t"], np.float64) / 3600.0, returns
    raise SettingsError(f"x_axis = {x_axis!r} is unknown; accepted: {', '.join(AXES)}")


def plot_results(
    dirs: Sequence[str | Path],
    num_timesteps: int | None = None,
    x_axis: str = "timesteps",
    task_name: str = "",
    figsize: tuple[float, float] = (8, 2),
) -> Figure:
    """A matplotlib figure with episodes as points and their moving average over `WINDOW` episodes as a line.

    Args:
        dirs: folders with monitor files.
        num_timesteps: episodes that ended after this number of steps are left out; None: no limit.
        x_axis: the unit of the x axis, see `ts2xy`.
        task_name: the title of the figure.
        figsize: (width, height) in inches.

    Raises:
        SettingsError: a folder has no monitor files, `x_axis` is unknown, or matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingsError(f"plot_results needs matplotlib: {pip_install('matplotlib')}") from None
    figure = Figure(figsize=figsize)
    axes = figure.add_subplot()
    for folder in [dirs] if isinstance(dirs, str | Path) else dirs:
        results = load_results(folder)
        known = np.cumsum(results["l"]) <= (np.inf if num_timesteps is None else num_timesteps)
        x, y = (values[known] for values in ts2xy(results, x_axis))
        axes.scatter(x, y, s=2)
        if len(x) >= WINDOW:
            axes.plot(x[WINDOW - 1 :], np.convolve(y, np.ones(WINDOW) / WINDOW, "valid"), label=str(folder))
    axes.set(title=task_name, xlabel=AXES[x_axis], ylabel="return")
    figure.tight_layout()
    return figure


class CheckNan(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """Raises `EnvironmentFault` when an action, observation or reward is NaN (or infinite, unless `check_inf=False`)."""

    def __init__(self, env: gymnasium.Env[object, object], check_inf: bool = True) -> None:
        RecordConstructorArgs.__init__(self, check_inf=check_inf)
        gymnasium.Wrapper.__init__(self, env)
        self.check_inf = check_inf
        self._steps, self._last_action = 0, "none yet"
        self._name = name_of(env)

    def reset(self, **kwargs: Any) -> tuple[object, dict[str, object]]:
        observation, info = self.env.reset(**kwargs)
        self._steps, self._last_action = 0, "none yet"
        self._check(observation, "observation")
        return observation, info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        self._check(action, "action")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps, self._last_action = self._steps + 1, str(action)
        self._check(observation, "observation")
        self._check(reward, "reward")
        return observation, reward, terminated, truncated, info

    def _check(self, value: object, field: str) -> None:
        for path, leaf in _leaves(value, field):
            wrong = ~np.isfinite(leaf) if self.check_inf else np.isnan(leaf)
            if np.any(wrong):
                raise EnvironmentFault(
                    f"environment {self._name!r}, step {self._steps}: {path} holds {np.asarray(leaf)[wrong].ravel()[0]};"
                    f" the last action was {self._last_action}"
                )


def _leaves(value: object, path: str) -> Iterator[tuple[str, NDArray[np.floating]]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _leaves(child, f"{path}[{key!r}]")
    elif isinstance(value, tuple):
        for i, child in enumerate(value):
            yield from _leaves(child, f"{path}[{i}]")
    else:
        array = np.asarray(value)
        if array.dtype.kind == "f":
            yield path, array


INNER, KEY = "observation", "time_feature"


class TimeFeature(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """Adds the remaining share of the episode, from 1 to 0, to the observation.

    It is appended to a vector: to the observation, or to the entry `observation` of a Dict, as in environments with goals. Any
    other Dict gets an entry `time_feature`. Images and other observations become a Dict with the entries `observation` and
    `time_feature`.

    The length of an episode is the time limit of the environment, or `max_steps` if it has none. With `test_mode=True` the
    feature is always 0, to test whether an agent relies on it.
    """

    def __init__(self, env: gymnasium.Env[object, object], max_steps: int = 1000, test_mode: bool = False) -> None:
        RecordConstructorArgs.__init__(self, max_steps=max_steps, test_mode=test_mode)
        gymnasium.Wrapper.__init__(self, env)
        self.max_steps, self.test_mode, self._steps = _time_limit(env) or max_steps, test_mode, 0
        share, space = spaces.Box(0.0, 1.0, (1,), np.float32), env.observation_space
        self._vector: spaces.Box | None = None
        """The space of the vector to which the time is appended; None if there is no such vector."""
        if _is_vector(space):
            self.observation_space = self._vector = _longer(space)
        elif not isinstance(space, spaces.Dict):
            self.observation_space = spaces.Dict({INNER: space, KEY: share})
        elif _is_vector(inner := space.spaces.get(INNER)):
            self._vector = _longer(inner)
            self.observation_space = spaces.Dict({**space.spaces, INNER: self._vector})
        else:
            self.observation_space = spaces.Dict({**space.spaces, KEY: share})

    def reset(self, **kwargs: Any) -> tuple[object, dict[str, object]]:
        observation, info = self.env.reset(**kwargs)
        self._steps = 0
        return self._with_time(observation), info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        return self._with_time(observation), reward, terminated, truncated, info

    def _with_time(self, observation: Any) -> object:
        left = 0.0 if self.test_mode else max(0.0, 1.0 - self._steps / self.max_steps)
        if self._vector is not None:
            if not isinstance(observation, dict):
                return np.append(observation, left).astype(self._vector.dtype)
            return {**observation, INNER: np.append(observation[INNER], left).astype(self._vector.dtype)}
        entry = {KEY: np.array([left], np.float32)}
        return {**observation, **entry} if isinstance(observation, dict) else {INNER: observation, **entry}


def _is_vector(space: object) -> TypeGuard[spaces.Box]:
    return isinstance(space, spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)


def _longer(space: spaces.Box) -> spaces.Box:
    """The space of a vector with one more number between 0 and 1."""
    low, high = np.append(space.low, 0.0), np.append(space.high, 1.0)
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=np.dtype(space.dtype).type)


def _time_limit(env: gymnasium.Env[object, object]) -> int | None:
    """The number of steps of the outermost `TimeLimit` of `env`, or None."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return int(env.get_wrapper_attr("_max_episode_steps"))  # gymnasium has no public name for it
        env = env.env
    return None


VELOCITIES = {
    "CartPole-v1": (1, 3),
    "MountainCar-v0": (1,),
    "MountainCarContinuous-v0": (1,),
    "Pendulum-v1": (2,),
    "LunarLander-v3": (2, 3, 5),
    "LunarLanderContinuous-v3": (2, 3, 5),
}
"""Environment id -> indices of the velocities in its observations."""


class MaskVelocity(gymnasium.ObservationWrapper[object, object, object], RecordConstructorArgs):
    """Sets the velocities of a vector observation to 0.

    `indices` are the indices of the velocities in the vector; None: those in `VELOCITIES`.
    """

    def __init__(self, env: gymnasium.Env[object, object], indices: Sequence[int] | None = None) -> None:
        RecordConstructorArgs.__init__(self, indices=indices)
        gymnasium.ObservationWrapper.__init__(self, env)
        name = name_of(env)
        if indices is None and name not in VELOCITIES:
            raise SettingsError(f"the velocities of {name} are not known; give indices=[...]")
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise SettingsError(f"MaskVelocity needs a vector observation, got {space}")
        self._keep = np.ones(space.shape, space.dtype)
        self._keep[list(VELOCITIES[name] if indices is None else indices)] = 0

    def observation(self, observation: object) -> object:
        return np.asarray(observation) * self._keep


METHOD, INFO = "action_masks", "action_mask"
"""Where the environments that an agent accepts have their masks: a method, or an entry of the info."""
Info = dict[str, Any]
MOST = 1_000_000
"""The largest number of combinations. The policy has an output, and the mask an entry, for each combination."""


class CombinedActions(gymnasium.ActionWrapper[object, object, object], RecordConstructorArgs):
    """Makes every combination of the parts of a MultiDiscrete or MultiBinary action a value of one Discrete action.

    The last part changes fastest. Masks can then depend on several parts. The environment gives a mask with one axis per part,
    bool [n_1, .., n_K]: entry [a_1, .., a_K] is True where that combination is allowed. The masks of the parts, concatenated,
    bool [n_1 + .. + n_K], are accepted as well.
    """

    def __init__(self, env: gymnasium.Env[object, object]) -> None:
        """Raises UnsupportedSpaceError for other action spaces, and SettingsError for more than `MOST` combinations."""
        RecordConstructorArgs.__init__(self)
        gymnasium.ActionWrapper.__init__(self, env)
        self._parts = _parts(env)
        sizes = tuple(int(n) for n in self._parts.nvec.flatten())
        if prod(sizes) > MOST:
            raise SettingsError(
                f"the actions of {named(env)} have {prod(sizes)} combinations; CombinedActions takes at most {MOST}; leave it"
                " out and mask each part, or choose the parts one after the other in several steps"
            )
        self._sizes = sizes
        self.action_space = Discrete(prod(sizes))

    def action(self, action: object) -> NDArray[Any]:
        """The MultiDiscrete or MultiBinary action for the number of a combination."""
        found = np.unravel_index(int(np.asarray(action)), self._sizes)
        parts = np.asarray(found, self._parts.dtype).reshape(self._parts.nvec.shape) + self._parts.start
        return parts.astype(self.env.action_space.dtype)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[object, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._combined(info)

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self.env.step(self.action(action))
        return observation, reward, terminated, truncated, self._combined(info)

    def _combined(self, info: Info) -> Info:
        return {**info, INFO: self._of_combinations(info[INFO])} if INFO in info else info

    @property
    def action_masks(self) -> Callable[[], NDArray[np.bool_]]:
        """A function that returns the mask, bool [combinations], True where a combination is allowed.

        Raises:
            AttributeError: the environment has no masks.
        """
        masks = self.env.get_wrapper_attr(METHOD)
        return lambda: self._of_combinations(masks())

    def _of_combinations(self, mask: object) -> NDArray[np.bool_]:
        """The mask of the environment as a mask of combinations, bool [combinations].

        Raises:
            MaskError: the mask has another shape, or values that are neither true nor false.
        """
        try:
            given = np.asarray(mask)
        except ValueError:  # rows of different lengths
            given = np.empty(0)
        if given.dtype != np.bool_ and (given.dtype.kind not in "iuf" or not np.isin(given, (0, 1)).all()):
            raise MaskError("an action mask holds other values than true and false, or 1 and 0")
        given = given.astype(np.bool_)
        if given.shape == (sum(self._sizes),):
            allowed = np.ones((), np.bool_)
            for part in np.split(given, np.cumsum(self._sizes[:-1])):
                allowed = np.logical_and.outer(allowed, part)
            return allowed.flatten()
        if given.shape != self._sizes:
            raise MaskError(
                f"an action mask has shape {given.shape}; CombinedActions needs {self._sizes}, or ({sum(self._sizes)},) for a"
                " mask of each part"
            )
        return given.flatten()


def _parts(env: gymnasium.Env[object, object]) -> MultiDiscrete:
    space = env.action_space
    if isinstance(space, MultiDiscrete):
        return space
    if isinstance(space, MultiBinary):
        return MultiDiscrete(np.full(space.shape, 2), dtype=np.int64)
    raise UnsupportedSpaceError(
        f"CombinedActions combines the parts of MultiDiscrete and MultiBinary actions; {named(env)} has {space}"
    )


class ActionMasker(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """Adds a method `action_masks()` that returns the result of `mask_fn`.

    `mask_fn` is a function that takes the environment, or the name of a method of the environment or of a wrapper. The method
    is called without arguments, or with the environment if it needs an argument.
    """

    def __init__(self, env: gymnasium.Env[object, object], mask_fn: Callable[[Any], object] | str) -> None:
        RecordConstructorArgs.__init__(self, mask_fn=mask_fn)
        gymnasium.Wrapper.__init__(self, env)
        self._mask = _mask_method(env, mask_fn) if isinstance(mask_fn, str) else lambda: mask_fn(env)

    def action_masks(self) -> NDArray[np.bool_]:
        """The current action mask: bool [A], True where the action is allowed."""
        return np.asarray(self._mask(), dtype=bool)


def _mask_method(env: gymnasium.Env[object, object], name: str) -> Callable[[], object]:
    """The method `name` of the environment or of a wrapper, as a function without arguments.

    Raises:
        SettingsError: neither the environment nor a wrapper has the method.
    """
    method: object = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    if not callable(method):
        raise SettingsError(
            f"{named(env)} has no method {name!r}; give the name of one, or a function of the environment"
        )
    try:
        inspect.signature(method).bind()
    except TypeError:
        return partial(method, env)  # as in sb3-contrib, the method may take the environment as its argument
    except ValueError:
        pass  # the method is written in C and its signature is unknown
    return cast("Callable[[], object]", method)
