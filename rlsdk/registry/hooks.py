"""The hooks a plugin module may implement. A plugin marks its functions with `hookimpl`; each is optional.

What a hook gives is named in the manifest, so that a lookup loads only the plugin that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from rlsdk.registry.spec import AlgorithmSpec

PROJECT = "rlsdk"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def algorithm() -> AlgorithmSpec:  # type: ignore[empty-body]  # a hook specification has no body
    """Return the plugin's `AlgorithmSpec`. Importing the module and calling this must import no torch."""


@hookspec(firstresult=True)
def metric_sinks() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Name -> function of the run's folder that returns a `MetricSink`; `--sink NAME` of `rlsdk run`, `bench` and `tune` uses
    it. Further abilities of a sink are in `rlsdk.sinks`, such as `BeginsRuns` and `TakesFiles`."""


@hookspec(firstresult=True)
def environment_makers() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Namespace -> function (id, **kwargs) that returns a `gymnasium.Env`; used for ids such as `namespace/Name-v0`."""


@hookspec(firstresult=True)
def executors() -> Mapping[str, Callable[[int], object]]:  # type: ignore[empty-body]
    """Name -> function of the number of workers that returns an `Executor`; `make_vec_env(vectorization=NAME)` plays the
    candidates of population methods on it, `rlsdk run --seeds N --executor NAME` the runs."""


@hookspec(firstresult=True)
def serializers() -> Mapping[str, Callable[[], object]]:  # type: ignore[empty-body]
    """File suffix -> function that returns a `Serializer`; `save` and `load` use it for paths that end so."""
