"""`make_vec_env`: several copies of an environment in this process, in other processes, or as its own vector version."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import gymnasium

from rlsdk import executors
from rlsdk.environments.adapters.checks import Environment, name_of
from rlsdk.environments.adapters.observations import spaces_of
from rlsdk.environments.gymnasium_adapter import NATIVE, EnvSource, in_process, make_one, make_together, vectorizer_of
from rlsdk.environments.vector.connected import ConnectedEnv, Seeds, require_copies, require_separate
from rlsdk.environments.wrapping import Wrapper, known_wrapper, wrapped, wrapper_of
from rlsdk.errors import SettingsError, raise_stop, raised, shown, suggest
from rlsdk.registry import extensions
from rlsdk.registry.loading import is_offered
from rlsdk.runtime.lazy import advice_of_sb3, is_installed, of_package
from rlsdk.runtime.packages import pip_install
from rlsdk.settings.load import environment_id, text_of

ASYNC = "async"
VECTORIZATIONS = ("auto", "sync", ASYNC, NATIVE)
ENVS, PARALLEL = "rlsdk-envs", executors.PARALLEL
PACKAGES = {"c": ENVS, "torch": ENVS, ASYNC: PARALLEL, **executors.PACKAGES}
PACKAGES |= {"jax": "rlsdk-jax", "pettingzoo": "rlsdk-pettingzoo"}
"""Vectorization -> the package of this project that offers it."""
WORTH_PROCESSES = 700e-6
"""Processes are used when stepping all copies once takes longer than this time in seconds.

With 2 cores and 2 to 32 copies, processes become faster between 400 and 800 microseconds (table in docs/environments.md).
"""


def make_vec_env(  # noqa: PLR0913  # the signature of stable-baselines3
    env: EnvSource | Sequence[Callable[[], object]] | None = None,
    n_envs: int | None = None,
    seed: int | None = None,
    *,
    vectorization: str = "auto",
    env_kwargs: Mapping[str, object] | None = None,
    wrappers: Sequence[str | Wrapper] = (),
    monitor_dir: str | Path | None = None,
    workers: int | None = None,
    timeout: float = 60.0,
    restart: bool = False,
    start_method: str | None = None,
    collectors: int | None = None,
    executor: str = "processes",
    max_lag: int = 0,
    **documented: object,
) -> ConnectedEnv:
    """A vector environment with `n_envs` copies of an environment.

    The copies get the same seeds in this process, in other processes and in collectors.

    Args:
        env: gymnasium id, also with arguments (`Ant-v5?healthy_reward=0.5`), a function that makes one environment, or a list
            of such functions, one for each copy.
        n_envs: number of copies; None: one, or the length of the list of functions.
        seed: seed of the first reset that gets no seed, such as the first reset by an agent without a seed.
        vectorization: `sync` steps the copies one after the other in this process. `async` steps them in processes. `native`
            uses the environment's own vector version, or that of a package such as rlsdk-envs, which has those of envpool. The
            name of a vectorizer of a package, such as `c` or `torch` of rlsdk-envs, makes the environments with it, from any
            `env` that it takes and `env_kwargs`. For ids whose namespace has its name (`pettingzoo/simple_spread_v3`), `auto`
            and `sync` are this vectorizer. The name of an executor (`processes`, `in-process`, or one of a plugin) plays whole
            episodes with it, for algorithms such as ARS. `auto` is `async` if there are several copies and cores and a step of
            all copies takes more than 700 microseconds, otherwise `sync`. The type of the result depends on it.
        env_kwargs: arguments for `gymnasium.make` or the function.
        wrappers: wrappers of each copy, innermost first: functions or classes that take an environment, names of wrappers in
            gymnasium.wrappers or of a package such as rlsdk-envs, or `package.module:Class`.
        monitor_dir: folder for one monitor file per copy; the wrapper `Monitor` of rlsdk-envs writes it.
        workers: number of processes, by default the number of cores; each process steps its share of the copies.
        timeout: seconds after which a process that does not answer counts as hung.
        restart: replace a process that dies or hangs instead of raising an error. The metric `rollout/worker_restarts` is the
            number of replaced processes.
        start_method: start method of the processes (`fork`, `forkserver`, `spawn`); by default that of the platform.
        collectors: number of collectors that share the copies. Each collector acts in its copies with its own copy of the
            policy and returns its part of the rollout. An agent in these environments has the same number of `env_groups`.
        executor: the executor of the collectors: `processes`, `in-process` (the same result), or one of a plugin.
        max_lag: number of rounds that collectors may be ahead of the learner, so that both work at the same time. They then
            act with weights that are this number of rounds old. With 0, every rollout comes from the current policy.
        documented: arguments that stable-baselines3 documents and that have another name here; the error names it.

    Raises:
        SettingsError: an argument is invalid.
        EnvironmentFault: the environment cannot be made; the message names the cause and the fix.
    """
    own = vectorizer_of(env) if collectors is None and "/" in str(env) else None
    vectorization = own or vectorization if vectorization in ("auto", "sync") else vectorization
    offered = vectorization not in VECTORIZATIONS and is_offered("vectorizers", vectorization)
    _require_arguments(env, documented, any_kind=offered)
    _require_kinds(env_kwargs, wrappers)
    _require_processes(workers, timeout, start_method)
    sources = _sources(env, n_envs)
    require_vectorization(vectorization)
    arguments, among = dict(env_kwargs or {}), {"collectors": collectors, "executor": executor, "max_lag": max_lag}
    in_collectors = among != {"collectors": None, "executor": "processes", "max_lag": 0}
    if (offered or vectorization == NATIVE) and not in_collectors:
        if wrappers or monitor_dir:
            raise SettingsError(f"vectorizer {vectorization!r} makes copies together, without wrappers and monitor_dir")
        together = make_together(vectorization, env, len(sources), arguments)
        together.seeds = Seeds(seed)
        if vectorization in (own, NATIVE):
            together.name, together.env_id = environment_id(str(env)).name, _id_of(env, arguments, ())
        return together
    layers = tuple(map(wrapper_of, wrappers))
    monitors: list[Wrapper | None] = [None] * len(sources)
    if monitor_dir is not None:
        # the wrapper is found here: other processes would look through the plugins again
        monitor: Callable[..., Any] = known_wrapper("Monitor")
        monitors = [partial(monitor, filename=Path(monitor_dir) / str(i)) for i in range(len(sources))]
    makers = [_Maker(source, arguments, layers, each) for source, each in zip(sources, monitors, strict=True)]
    options = {
        "workers": workers or os.cpu_count() or 1,
        "timeout": timeout,
        "restart": restart,
        "start_method": start_method,
    }
    if in_collectors:
        unused = {"vectorization": vectorization, "workers": workers, "restart": restart, "start_method": start_method}
        made = _in_collectors(makers, {**among, "unused": unused})
        made.seeds = Seeds(seed)
    else:
        made = _make(makers, vectorization, options, seed)
    made.env_id = _id_of(env, arguments, wrappers)
    return made


def require_vectorization(name: str) -> None:
    """Raises SettingsError unless `name` is one of `VECTORIZATIONS`, or the name of a vectorizer or an executor."""
    if name in VECTORIZATIONS and (name != ASYNC or is_installed(PARALLEL)):
        return
    offers = is_offered("vectorizers", name), executors.is_executor(name)
    if all(offers):
        raise SettingsError(
            f"vectorization {name!r} is a vectorizer of one package and an executor of another; uninstall one"
        )
    if any(offers):
        return
    if name in PACKAGES:
        fix = pip_install(PACKAGES[name])
        raise SettingsError(f"vectorization {name!r} is in {PACKAGES[name]}, which is not installed; install it: {fix}")
    known = dict.fromkeys((*VECTORIZATIONS, *executors.names(), *extensions("vectorizers")))
    raise SettingsError(f"vectorization {name!r} is unknown; {suggest(name, known)}")


def _id_of(env: object, kwargs: Mapping[str, object], wrappers: Sequence[object]) -> str | None:
    """The id with arguments and wrappers that makes the same environments, without `render_mode`.

    None if they cannot be written as text.
    """
    lasting = {name: value for name, value in kwargs.items() if name != "render_mode"}
    return text_of(env, lasting, wrappers) if isinstance(env, str) else None


def _make(makers: Sequence[_Maker], vectorization: str, options: Mapping[str, Any], seed: int | None) -> ConnectedEnv:
    """The vector environment that steps the copies as `vectorization` selects. `options`: those of processes."""
    # an environment that cannot be made raises a clear error here
    first, count = makers[0].bare(), len(makers)
    if executors.is_executor(vectorization):
        if any(maker.env is not makers[0].env for maker in makers):
            raise SettingsError(f"vectorization={vectorization!r} plays copies of one environment; give one function")
        _require_new(makers, first)
        # one copy is in this process
        here = in_process([makers[0].in_monitor(first)], seed)
        make = of_package(PARALLEL, f"vectorization {vectorization!r}").ExecutorVectorEnv
        executor = executors.make_executor(vectorization, options["workers"])
        return cast("ConnectedEnv", make(here, makers[0], executor, count, options["workers"]))
    if vectorization == ASYNC or (vectorization == "auto" and _is_worth_processes(first, count)):
        parallel, spaces, name = of_package(PARALLEL, f"vectorization {ASYNC!r}"), spaces_of(first), name_of(first)
        _require_new(makers, first)
        # First, so that what it holds, such as a port or a window, is free for those in the processes.
        _close_trial(first)
        given = parallel.ProcessOptions(**options)
        return cast("ConnectedEnv", parallel.ProcessVectorEnv(makers, spaces, given, name=name, seed=seed))
    return in_process([makers[0].in_monitor(first), *(maker() for maker in makers[1:])], seed)


def _in_collectors(makers: Sequence[_Maker], given: Mapping[str, object]) -> ConnectedEnv:
    """The vector environment whose copies are in collectors. `given`: the arguments of rlsdk-parallel, which checks them."""

    def inspected() -> tuple[object, str]:
        # a copy that cannot be made raises a clear error here; it is closed before processes start
        first = makers[0].bare()
        _require_new(makers, first)
        _close_trial(first)
        return spaces_of(first), name_of(first)

    make = of_package(PARALLEL, "the argument collectors").make_collectors
    return cast("ConnectedEnv", make(makers, inspected, **given))


def _require_arguments(env: object, documented: Mapping[str, object], *, any_kind: bool) -> None:
    """Raises SettingsError when an argument is unknown or has another name here, or when `env` makes no environment.

    With `any_kind`, it may be anything but None: vectorizers check it.
    """
    for name in documented:
        known = advice_of_sb3("make_vec_env", name)
        hint = f"use {known}" if known else suggest(name, _ARGUMENTS)
        raise SettingsError(f"make_vec_env takes no {name!r}; {hint}")
    if env is None:
        raise SettingsError("make_vec_env needs an environment: a gymnasium id, a function, or a list of functions")
    if not any_kind and not isinstance(env, str | list | tuple) and not callable(env):
        hint = "algorithms take an environment that exists as it is; " if hasattr(env, "step") else ""
        raise SettingsError(
            f"make_vec_env makes the copies itself, and {shown(env)} is neither an id nor a function; {hint}give the id, or a"
            " function that makes a new environment at each call, such as lambda: gymnasium.make(id)"
        )


def _require_kinds(env_kwargs: object, wrappers: object) -> None:
    """Raises SettingsError for arguments that are not a table or a list."""
    if env_kwargs is not None and not isinstance(env_kwargs, Mapping):
        raise SettingsError(f"env_kwargs = {shown(env_kwargs)} must be a table of arguments, such as {{'g': 9.81}}")
    if isinstance(wrappers, str) or not isinstance(wrappers, Sequence):
        raise SettingsError(
            f"wrappers = {shown(wrappers)} must be a list, also of one: wrappers=[...], innermost first"
        )


LONGEST_WAIT = 2_000_000
"""The largest `timeout` in seconds: the system counts milliseconds with 32 bits."""


def _require_processes(workers: object, timeout: object, start_method: object) -> None:
    """Raises SettingsError for a number of processes, a time or a way to start them that cannot be."""
    if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        raise SettingsError(f"workers = {workers!r} must be a positive whole number, or None for one process per core")
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout <= LONGEST_WAIT:
        raise SettingsError(
            f"timeout = {shown(timeout, 60)} must be a positive number of seconds, at most {LONGEST_WAIT:,}"
        )
    known = multiprocessing.get_all_start_methods()
    if start_method is not None and start_method not in known:
        raise SettingsError(f"start_method = {start_method!r} is unknown; accepted: None, {', '.join(known)}")


def _sources(env: object, n_envs: object) -> list[object]:
    """The id or function that makes each copy, one per copy.

    Raises:
        SettingsError: `n_envs` is not positive, or not the length of the list; or an entry of the list makes nothing.
    """
    if not isinstance(env, list | tuple):
        count = 1 if n_envs is None else n_envs
        return [env] * require_copies(count)
    for source in env:
        if not callable(source) and not isinstance(source, str):
            raise SettingsError(
                f"a list of environments must hold functions that each make one, or ids; got {shown(source)};"
                " write [lambda: make_it(), ...]"
            )
    if not env or n_envs not in (None, len(env)):
        raise SettingsError(f"n_envs = {n_envs!r}, but the list has {len(env)} functions; leave n_envs out")
    return list(env)


_ARGUMENTS = tuple(inspect.signature(make_vec_env).parameters)[:-1]


def _require_new(makers: Sequence[_Maker], first: Environment) -> None:
    """Raises EnvironmentFault when the second function returns `first`, or a wrapper of the environment inside `first`."""
    # An id makes a new environment each time; a function may return the same one.
    if len(makers) > 1 and not isinstance(makers[1].env, str):
        second = makers[1].bare()
        require_separate([first, second], name_of(first))
        _close_trial(second)


def _close_trial(trial: Environment) -> None:
    """Close an environment that only was looked at; training is possible with one that cannot be closed."""
    try:
        trial.close()
    except BaseException as error:
        raise_stop(error)
        warnings.warn(f"environment {name_of(trial)!r} {raised(error, 'close()')}", RuntimeWarning, stacklevel=2)


class _Maker:
    """Makes one copy of the environment. It is pickled and sent to the process that steps the copy."""

    def __init__(
        self, env: EnvSource, kwargs: dict[str, object], wrappers: tuple[Wrapper, ...], monitor: Wrapper | None
    ) -> None:
        self.env, self.kwargs, self.wrappers, self.monitor = env, kwargs, wrappers, monitor

    def __getstate__(self) -> dict[str, object]:
        """The state for pickling, with gymnasium's registration of the id. The other process may not have registered it."""
        known = gymnasium.registry.get(environment_id(self.env).name) if isinstance(self.env, str) else None
        return {**vars(self), "registered": known}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if (known := state.pop("registered")) is not None:
            # The process may have imported the module that registers the id; its own registration stays.
            gymnasium.registry.setdefault(known.id, known)
        vars(self).update(state)

    def bare(self) -> Environment:
        """Make a copy with its wrappers, but without a monitor."""
        instance = make_one(self.env, self.kwargs)
        for wrapper in self.wrappers:
            instance = wrapped(wrapper, instance)
        return instance

    def in_monitor(self, instance: Environment) -> Environment:
        """The copy `instance` inside its monitor, if there is a folder for monitor files."""
        return instance if self.monitor is None else wrapped(self.monitor, instance)

    def __call__(self) -> Environment:
        return self.in_monitor(self.bare())


def _is_worth_processes(trial: Environment, copies: int) -> bool:
    """Whether the steps of `trial` are slow enough for processes, which a package has: without it, a warning names it.

    Never if the environment has an attribute `in_one_process` that is true, as one whose library does not survive a fork.

    The measurement leaves `trial` in the middle of an episode.
    """
    # multiprocessing lets no daemon start processes
    if copies < 2 or (os.cpu_count() or 1) < 2 or multiprocessing.current_process().daemon:
        return False
    try:
        if getattr(trial.unwrapped, "in_one_process", False):
            return False
        # The median of twenty, because the first steps of an episode may take much longer.
        is_worth = copies * sorted(_times_of_steps(trial))[10] > WORTH_PROCESSES
    except BaseException as error:
        # its errors are reported when it is used
        raise_stop(error)
        return False
    if is_worth and not is_installed(PARALLEL):
        warnings.warn(
            f"environment {name_of(trial)!r}: its {copies} copies would be faster in processes, which are in {PARALLEL}:"
            f" {pip_install(PARALLEL)}; vectorization='sync' steps them in this process without this warning",
            RuntimeWarning,
            stacklevel=4,
        )
        return False
    return is_worth


def _times_of_steps(trial: Environment) -> list[float]:
    """Seconds that each of twenty random steps took."""
    # A fixed seed: the choice then depends on the speed of the environment only, not on the actions.
    trial.action_space.seed(0)
    trial.reset(seed=0)
    times = []
    for _ in range(20):
        action, began = trial.action_space.sample(), time.perf_counter()
        *_, terminated, truncated, _ = trial.step(action)
        times.append(time.perf_counter() - began)
        if terminated or truncated:
            trial.reset()
    return times
