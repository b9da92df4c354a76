"""Several copies of an environment: in this process, in processes, or as the environment's own vector version."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from rlsdk import executors
from rlsdk.environments import envpool_vector
from rlsdk.environments.executor_envs import ExecutorEnvs
from rlsdk.environments.gymnasium_adapter import Envs, EnvSource, connect, in_process, make_one, name_of, spaces_of
from rlsdk.environments.native_vector import NativeVectorEnv
from rlsdk.environments.processes import ProcessEnvs, ProcessOptions
from rlsdk.environments.seeds import Seeds
from rlsdk.environments.wrappers import Monitor
from rlsdk.errors import EnvironmentFault, SettingsError, suggest

KINDS = ("auto", "sync", "async", "native")
WORTH_PROCESSES = 700e-6
"""Seconds of work in stepping all copies once, from which processes pay: measured on 2 cores they break even between 400 and
800 microseconds, for 2 to 32 copies (docs/environments.md has the table)."""


def make_vec_env(  # noqa: PLR0913  # the documented signature
    env: EnvSource,
    n_envs: int = 1,
    *,
    seed: int | None = None,
    vectorization: str = "auto",
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | Callable[[Any], Any]] = (),
    monitor_dir: str | Path | None = None,
    workers: int | None = None,
    timeout: float = 60.0,
    restart: bool = False,
    start_method: str | None = None,
) -> Envs:
    """`n_envs` copies of an environment behind one interface, seeded alike however they run.

    Args:
        env: gymnasium id, or a function that makes one environment.
        n_envs: how many copies.
        seed: of the first reset that is given none, such as the first of an agent made without a seed.
        vectorization: `sync` steps them one after another in this process; `async` in processes; `native` uses the
            environment's own vector version, or envpool's where that package is installed; the name of an executor (of a
            plugin, `processes`, `in-process`) plays the candidates of population methods there; `auto` takes processes
            when there are several copies and cores and stepping them all takes longer than `WORTH_PROCESSES`, otherwise
            this process.
            The choice is the type of what is returned.
        env_kwargs: arguments for `gymnasium.make` or the function.
        wrappers: applied to each copy, innermost first: functions or classes of the environment, or names of wrappers in
            rlsdk.environments or gymnasium.wrappers.
        monitor_dir: folder for one monitor file per copy.
        workers: processes; as many as there are cores by default, each steps its share of the copies.
        timeout: seconds after which a process that does not answer counts as hung.
        restart: replace a process that dies or hangs instead of raising; the metric `rollout/worker_restarts` counts.
        start_method: of the processes (`fork`, `forkserver`, `spawn`); the platform's own by default.

    Raises:
        SettingsError: an argument makes no sense.
        EnvironmentFault: the environment cannot be made; the message carries the cause and the fix.
    """
    if not isinstance(n_envs, int) or isinstance(n_envs, bool) or n_envs < 1:
        raise SettingsError(f"n_envs = {n_envs!r} must be a positive whole number")
    if vectorization not in (*KINDS, *executors.names()):
        known = (*KINDS, *executors.names())
        raise SettingsError(f"vectorization {vectorization!r} is unknown; {suggest(vectorization, known)}")
    if vectorization == "native":
        native = _native(env, n_envs, dict(env_kwargs or {}), bool(wrappers or monitor_dir))
        native.seeds, native.recipe = Seeds(seed), env if isinstance(env, str) and not env_kwargs else None
        return native
    folder = None if monitor_dir is None else Path(monitor_dir)
    layers = tuple(map(_wrapper, wrappers))
    makers = [_Maker(env, dict(env_kwargs or {}), layers, folder, i) for i in range(n_envs)]
    first = makers[0].bare()  # what cannot be made fails here, with a clear message
    if vectorization in executors.names():
        places = workers or os.cpu_count() or 1
        elsewhere = executors.make_executor(vectorization, places)
        made: Envs = ExecutorEnvs(makers[0], in_process([makers[0].watched(first)], seed), elsewhere, n_envs, places)
    elif vectorization == "async" or (vectorization == "auto" and _processes_pay(first, n_envs)):
        pair, name = spaces_of(first), name_of(first)
        first.close()
        options = ProcessOptions(workers or os.cpu_count() or 1, timeout, restart, start_method)
        made = ProcessEnvs(makers, *pair, options, name=name, seed=seed)
    else:
        made = in_process([makers[0].watched(first), *(maker() for maker in makers[1:])], seed)
    made.recipe = env if isinstance(env, str) and not (env_kwargs or wrappers) else None
    return made


def _wrapper(choice: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The wrapper meant.

    Raises:
        SettingsError: no such name, or nothing that can be called.
    """
    if not isinstance(choice, str):
        if not callable(choice):
            raise SettingsError(f"wrapper {choice!r} is neither a name nor a function of an environment")
        return choice
    import rlsdk.environments.wrappers as own

    places = {name: place for place in (gymnasium.wrappers, own) for name in place.__all__}
    if choice not in places:
        raise SettingsError(f"unknown wrapper {choice!r}; {suggest(choice, places)}")
    made: Callable[[Any], Any] = getattr(places[choice], choice)
    return made


class _Maker:
    """Makes copy number `index`; travels to the process that steps it."""

    def __init__(
        self, env: EnvSource, kwargs: dict[str, Any], wrappers: tuple[Any, ...], monitor: Path | None, index: int
    ) -> None:
        self.env, self.kwargs, self.wrappers, self.monitor, self.index = env, kwargs, wrappers, monitor, index

    def bare(self) -> Any:
        """A copy without its monitor."""
        instance = make_one(self.env, self.kwargs)
        for wrapper in self.wrappers:
            instance = wrapper(instance)
        return instance

    def watched(self, instance: Any) -> Any:
        """The copy with its monitor."""
        return instance if self.monitor is None else Monitor(instance, self.monitor / str(self.index))

    def __call__(self) -> Any:
        return self.watched(self.bare())


def _processes_pay(trial: Any, copies: int) -> bool:
    """Whether steps like those of `trial` are slow enough for processes; it is left in the middle of an episode."""
    if copies < 2 or (os.cpu_count() or 1) < 2:
        return False
    trial.action_space.seed(0)
    trial.reset(seed=0)
    times = []
    for _ in range(20):
        action, began = trial.action_space.sample(), time.perf_counter()
        try:
            *_, terminated, truncated, _ = trial.step(action)
        except Exception:  # whatever is wrong with it is reported when it is used
            return False
        times.append(time.perf_counter() - began)
        if terminated or truncated:
            trial.reset()
    return copies * sorted(times)[len(times) // 2] > WORTH_PROCESSES


def _native(env: EnvSource, n_envs: int, kwargs: dict[str, Any], wrapped: bool) -> NativeVectorEnv:
    if not isinstance(env, str) or wrapped:
        raise SettingsError("vectorization='native' needs a gymnasium id, without wrappers and monitor_dir")
    try:
        vector = gymnasium.make_vec(env, n_envs, vectorization_mode="vector_entry_point", **kwargs)
    except gymnasium.error.Error as error:
        if not envpool_vector.knows(env):
            raise EnvironmentFault(
                f"{env!r} has no vector version of its own: {error}; use vectorization='sync', or install rlsdk[envpool]"
                " for the environments envpool has"
            ) from None
        vector = envpool_vector.EnvpoolVector(env, n_envs, **kwargs)
    connected = connect(vector)
    assert isinstance(connected, NativeVectorEnv)
    connected.name = env
    return connected
