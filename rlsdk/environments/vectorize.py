"""Several copies of an environment: in this process, in processes, or as the environment's own vector version."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from rlsdk.environments.gymnasium_adapter import EnvSource, connect, in_process, make_one
from rlsdk.environments.in_process import InProcessEnvs
from rlsdk.environments.native_vector import NativeVectorEnv
from rlsdk.environments.wrappers import Monitor
from rlsdk.errors import EnvironmentFault, SettingsError, suggest

KINDS = ("auto", "sync", "async", "native")
SLOW_STEP = 300e-6
"""Seconds a step must take before processes pay: measured on 2 cores they break even between 200 and 300 microseconds
(0.3 x at 50, 0.9 to 1.15 x at 200, 1.2 to 1.4 x at 400, 1.5 x at 800; 2 to 8 environments)."""


def make_vec_env(  # noqa: PLR0913  # the documented signature
    env: EnvSource,
    n_envs: int = 1,
    *,
    vectorization: str = "auto",
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    monitor_dir: str | Path | None = None,
    timeout: float = 60.0,
) -> InProcessEnvs | NativeVectorEnv:
    """`n_envs` copies of an environment behind one interface, seeded alike however they run.

    Args:
        env: gymnasium id, or a function that makes one environment.
        n_envs: how many copies.
        vectorization: `sync` steps them one after another in this process; `async` in a process each; `native` uses the
            environment's own vector version; `auto` takes processes when there are several copies and cores and a step of a
            copy takes longer than `SLOW_STEP`, otherwise this process. The choice is the type of what is returned.
        env_kwargs: arguments for `gymnasium.make` or the function.
        wrappers: gymnasium wrappers applied to each copy, innermost first.
        monitor_dir: folder for one monitor file per copy.
        timeout: seconds after which a process that does not answer counts as hung.

    Raises:
        SettingsError: an argument makes no sense.
        EnvironmentFault: the environment cannot be made; the message carries the cause and the fix.
    """
    if not isinstance(n_envs, int) or isinstance(n_envs, bool) or n_envs < 1:
        raise SettingsError(f"n_envs = {n_envs!r} must be a positive whole number")
    if vectorization not in KINDS:
        raise SettingsError(f"vectorization {vectorization!r} is unknown; {suggest(vectorization, KINDS)}")
    if vectorization == "native":
        return _native(env, n_envs, dict(env_kwargs or {}), bool(wrappers or monitor_dir))
    folder = None if monitor_dir is None else Path(monitor_dir)
    makers = [_Maker(env, dict(env_kwargs or {}), tuple(wrappers), folder, i) for i in range(n_envs)]
    if vectorization == "async":
        makers[0].bare().close()  # what cannot be made fails here, with a clear message
        return _in_processes(makers, timeout)
    first = makers[0].bare()
    if vectorization == "auto" and _processes_pay(first, n_envs):
        first.close()
        return _in_processes(makers, timeout)
    return in_process([makers[0].watched(first), *(maker() for maker in makers[1:])])


class _Maker:
    """Makes copy number `index`; travels to the process that steps it."""

    def __init__(
        self, env: EnvSource, kwargs: dict[str, Any], wrappers: tuple[Any, ...], monitor: Path | None, index: int
    ) -> None:
        self.env, self.kwargs, self.wrappers, self.monitor, self.index = env, kwargs, wrappers, monitor, index

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return self.env if isinstance(self.env, str) else getattr(self.env, "__name__", type(self.env).__name__)

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


class _Traced:
    """Makes an environment whose errors carry the traceback of the process they happened in."""

    def __init__(self, maker: _Maker) -> None:
        self.maker = maker

    def __call__(self) -> Any:
        return _TracedEnv(self.maker())


class _TracedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        try:
            return self.env.reset(**kwargs)
        except Exception as error:
            raise RuntimeError(_with_traceback("reset", error)) from None

    def step(self, action: Any) -> Any:
        try:
            return self.env.step(action)
        except Exception as error:
            raise RuntimeError(_with_traceback(f"step({action})", error)) from None


def _with_traceback(call: str, error: Exception) -> str:
    trace = "".join(traceback.format_exception(error)).rstrip()
    return f"raised {type(error).__name__} in {call}: {error}\n--- in its process ---\n{trace}"


def _processes_pay(trial: Any, copies: int) -> bool:
    """Whether a step of `trial` is slow enough for processes; it is left in the middle of an episode."""
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
    return sorted(times)[len(times) // 2] > SLOW_STEP


def _in_processes(makers: list[_Maker], timeout: float) -> NativeVectorEnv:
    env = AsyncVectorEnv([_Traced(maker) for maker in makers], autoreset_mode=AutoresetMode.SAME_STEP)
    connected = connect(env)
    assert isinstance(connected, NativeVectorEnv)
    connected.timeout, connected.name = timeout, makers[0].name
    return connected


def _native(env: EnvSource, n_envs: int, kwargs: dict[str, Any], wrapped: bool) -> NativeVectorEnv:
    if not isinstance(env, str) or wrapped:
        raise SettingsError("vectorization='native' needs a gymnasium id, without wrappers and monitor_dir")
    try:
        vector = gymnasium.make_vec(env, n_envs, vectorization_mode="vector_entry_point", **kwargs)
    except gymnasium.error.Error as error:
        raise EnvironmentFault(f"{env!r} has no vector version of its own: {error}; use vectorization='sync'") from None
    connected = connect(vector)
    assert isinstance(connected, NativeVectorEnv)
    return connected
