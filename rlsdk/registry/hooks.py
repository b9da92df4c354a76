"""The hooks that a plugin module can implement. A plugin marks its functions with `hookimpl`; each hook is optional.

The manifest lists the names that a hook returns, so that only the plugin that has a requested name is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from rlsdk.registry.manifest import AlgorithmSpec

PROJECT = "rlsdk"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def algorithm() -> AlgorithmSpec:  # type: ignore[empty-body]  # a hook specification has no body
    """Return the plugin's `AlgorithmSpec`. Importing the module and calling this hook must not import torch."""


@hookspec(firstresult=True)
def sinks() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return name -> function of the run directory that makes a `MetricSink`.

    `--logger NAME` of `rlsdk run`, `bench` and `tune` uses it. `rlsdk.sinks.Sink` describes the methods that a sink may have.
    """


@hookspec(firstresult=True)
def environments() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return namespace -> function (id, **kwargs) that makes a `gymnasium.Env` for ids such as `namespace/Name-v0`.

    The hook is called when an id of the namespace is first used. It may also register ids with gymnasium, whose `make` is then
    used for them.
    """


@hookspec(firstresult=True)
def vectorizers() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return name -> function (env, n_envs, **env_kwargs) that makes a vector environment of `n_envs` environments.

    `make_vec_env(env, n_envs, vectorization=NAME)` calls it. For ids `NAME/...` that gymnasium does not know it is the default,
    so that commands need the id only. It returns a vector environment of gymnasium, or an object with the members of
    `rlsdk.interfaces.VectorEnv`. An environment may have several rows, such as one for each agent. The function called `native`
    gets the ids of which gymnasium has no vector version.
    """


@hookspec(firstresult=True)
def wrappers() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return name -> class or function (env, **arguments) that wraps a `gymnasium.Env`.

    `make_vec_env(wrappers=[NAME])`, ids such as `CartPole-v1?wrapper=NAME` and `--wrapper NAME` use it. Names of
    `gymnasium.wrappers` go first. A file may name it, so arguments that are paths have the default None.
    """


@hookspec(firstresult=True)
def executors() -> Mapping[str, Callable[[int], object]]:  # type: ignore[empty-body]
    """Return name -> function of the number of workers that makes an `Executor`.

    `make_vec_env(vectorization=NAME)` plays whole episodes on it, for algorithms such as ARS.
    `rlsdk run --seeds N --executor NAME` runs the trainings on it.
    """


@hookspec(firstresult=True)
def serializers() -> Mapping[str, Callable[[], object]]:  # type: ignore[empty-body]
    """Return file suffix -> function that makes a `Serializer`; `save` and `load` use it for paths with that suffix."""


@hookspec(firstresult=True)
def kernels() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return name -> function that takes the place of the one of that name in `rlsdk.kernels.SLOTS`, with its arguments.

    The hook is called when the first kernel is looked up. `RLSDK_KERNELS=off`
    switches all kernels off, and `RLSDK_KERNELS=acme-kernel,rlsdk-kernels` uses those of these packages, the preferred first.
    `RLSDK_PLUGINS` has no effect on them.
    """


@hookspec(firstresult=True)
def networks() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return name -> class or function that makes a torch module, for the settings of `policy_kwargs` that end with `_class`.

    Each is called as the setting describes. A file stores the name, so such an agent is loaded without `custom_objects`.
    """


@hookspec(firstresult=True)
def distributions() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return name -> function (action space, width of the latent) that makes an action head, for `action_distribution`.

    `rlsdk.networks.build_actor_critic` describes heads. They raise an `RlsdkError` for other action spaces.
    """


@hookspec(firstresult=True)
def preset_files() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return file suffix, such as `.yml` -> function (path, spec of an algorithm, environment id) that reads a `Preset`.

    `--preset FILE` of `rlsdk run` and `rlsdk config` uses it.
    """


@hookspec(firstresult=True)
def profilers() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return name -> function (agent, name of its environment) that gives a context manager.

    `rlsdk run --profile` trains inside those of all packages. They print what they measured at the end of the block.
    """


@hookspec(firstresult=True)
def reports() -> Mapping[str, Callable[[Path], None]]:  # type: ignore[empty-body]
    """Return name -> function of the folder of a run or sweep that has just ended. One may draw curves, for example.

    Every installed report is called. An `RlsdkError` is printed and does not affect the run: its files are complete.
    """
