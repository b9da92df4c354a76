"""The hooks that the entry point of this package names. Ray is imported when an executor is made."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from rlsdk.errors import SettingsError
from rlsdk.registry import hookimpl
from rlsdk.runtime import pip_install

if TYPE_CHECKING:
    from rlsdk_ray.executor import RayExecutor


class RayFactory:
    """Makes the executor `ray`."""

    def __call__(self, workers: int) -> RayExecutor:
        """Make an executor that runs at most `workers` pieces at the same time."""
        _require_ray()
        from rlsdk_ray.executor import RayExecutor

        return RayExecutor(workers)

    def capacity(self) -> int:
        """The number of CPUs of the cluster, or of this machine if no cluster is configured."""
        _require_ray()
        from rlsdk_ray.connection import capacity

        return capacity()


@hookimpl
def executors() -> dict[str, Callable[[int], RayExecutor]]:
    """Name of an executor -> function that makes it for a number of workers."""
    return {"ray": RayFactory()}


def _require_ray() -> None:
    """Raise SettingsError if Ray cannot be imported."""
    try:
        import_module("ray")
    except ImportError as error:
        raise SettingsError(
            f"executor 'ray' needs the package ray, which cannot be imported ({error}): {pip_install('ray>=2.60')}; Ray has no"
            " wheels for every Python and system, executor 'processes' works everywhere"
        ) from None
