"""Executors run independent items of work: in this process, or in an executor of a package, found by its name.

rlsdk-parallel has `processes` and pools, rlsdk-ray has `ray`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast

from rlsdk.errors import RlsdkError, SettingsError, raised, shown, suggest
from rlsdk.interfaces import Executor
from rlsdk.registry import extension, extensions
from rlsdk.registry.loading import is_offered
from rlsdk.runtime.lazy import of_package
from rlsdk.runtime.packages import named_module, pip_install

__all__ = ["SerialExecutor", "capacity", "make_executor"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class SerialExecutor:
    """The executor that runs every item in this process, one after another."""

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        return [work(item) for item in items]

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """Return a finished future of `work(item)`: the work is done before this method returns."""
        future = Future[ResultT]()
        try:
            future.set_result(work(item))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Do nothing: there are no processes to end."""


EXECUTORS: dict[str, Callable[[int], Executor]] = {"in-process": lambda _: SerialExecutor()}
"""Name -> function of the number of workers that makes the executor, for the executors that need no plugin."""
PARALLEL = "rlsdk-parallel"
PACKAGES = {"processes": PARALLEL, "ray": "rlsdk-ray"}
"""Name of an executor -> the separate package that contains it."""


def names() -> tuple[str, ...]:
    """Return the names of all executors that can be used here. No plugin is imported."""
    return (*EXECUTORS, *extensions("executors"))


def is_place(name: str) -> bool:
    """Return whether `name` has the form `package.module:function`, the path of a function in a module."""
    module, colon, function = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *function.split(".")))


def is_executor(name: str) -> bool:
    """Return whether `name` names an executor, or has the form `package.module:function`.

    Nothing is imported: `make_executor` raises if the plugin or the module is broken.
    """
    return name in EXECUTORS or is_place(name) or is_offered("executors", name)


def make_executor(name: str, workers: int) -> Executor:
    """Return the executor called `name`, with `workers` workers.

    Args:
        name: an executor of the SDK or of a plugin; or `package.module:function`, a function of the number of workers that
            returns an executor or a `concurrent.futures.Executor`.
        workers: how many items the executor runs at the same time.

    Raises:
        SettingsError: there is no such executor, it cannot be made, or workers < 1.
        PluginError: the plugin that offers the executor is broken.
    """
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise SettingsError(f"{shown(workers, 60)} workers can do nothing; give a whole number, 1 or more")
    make = _factory(name)
    if name in EXECUTORS:
        return EXECUTORS[name](workers)
    try:
        made = make(workers)
    except RlsdkError:
        raise
    except Exception as error:
        raise SettingsError(f"executor {name!r} cannot be made for {workers} workers: it {raised(error)}") from error
    return _adapted(make, made, workers)


def capacity(name: str) -> int:
    """Return how many items the executor called `name` can run at the same time.

    This is the result of the attribute `capacity` of its factory, a function without arguments. Without that attribute it is
    the number of cores of this machine.

    Raises:
        SettingsError: there is no such executor. PluginError: the plugin that offers it is broken.
    """
    stated = getattr(_factory(name), "capacity", None)
    return int(stated()) if callable(stated) else os.cpu_count() or 1


def _factory(name: str) -> Callable[[int], object]:
    if name in EXECUTORS:
        return EXECUTORS[name]
    if is_place(name):
        return _function(name)
    if not is_executor(name):
        if name in PACKAGES:
            raise SettingsError(
                f"executor {name!r} is in a package that is not installed: {pip_install(PACKAGES[name])}"
            )
        raise SettingsError(f"unknown executor {name!r}; {suggest(name, names())}")
    return extension("executors", name)


def _function(place: str) -> Callable[[int], object]:
    """Import and return the function whose path `place` has the form `package.module:function`."""
    module, _, function = place.partition(":")
    try:
        found: Any = named_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise SettingsError(f"executor {place!r} cannot be imported: it {raised(error)}") from None
    if not callable(found):
        raise SettingsError(f"executor {place!r} is not a function of the number of workers")
    if found is ProcessPoolExecutor:
        # Before Python 3.14 this pool forks on Linux. In a process forked after torch has used threads, torch waits forever.
        found = partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("spawn"))
    return cast("Callable[[int], object]", found)


def _adapted(make: Callable[[int], object], made: object, workers: int) -> Executor:
    """Return the executor for `made`, the object that the factory `make` returned."""
    if not isinstance(made, Pool):
        return _checked(made)
    wanted = f"the executor that uses a {type(made).__name__}"
    executor: Executor = of_package(PARALLEL, wanted).FuturesExecutor(partial(make, workers), workers, made)
    return executor


def _checked(made: object) -> Executor:
    """Return `made`, unchanged. Raises SettingsError if it lacks a method of `Executor`."""
    if missing := [name for name in ("map", "submit", "close") if not callable(getattr(made, name, None))]:
        raise SettingsError(
            f"a {type(made).__name__} is not an executor: it has no {' and no '.join(missing)}; see rlsdk.interfaces.Executor"
        )
    return cast("Executor", made)
