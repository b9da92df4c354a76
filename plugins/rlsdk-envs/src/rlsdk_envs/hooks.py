"""The hooks that the entry point names: environments by their ids, functions that make vector environments, and wrappers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rlsdk.registry import hookimpl


@hookimpl
def environments() -> dict[str, Callable[..., object]]:
    """Namespace -> function that makes an environment. Importing this package has registered the ids with gymnasium."""
    import gymnasium

    return {"rlsdk": gymnasium.make}


@hookimpl
def vectorizers() -> dict[str, Callable[..., object]]:
    """Name -> function of an environment and a number that makes a vector environment."""
    names = {"c": "make_c_vec_env", "native": "make_envpool_vec_env", "torch": "make_torch_vec_env"}
    return {name: partial(_call, function) for name, function in names.items()}


@hookimpl
def wrappers() -> dict[str, Callable[..., object]]:
    """Name -> wrapper of a gymnasium environment."""
    from rlsdk_envs import wrappers as own  # imports gymnasium, which a listing does not need

    return {name: getattr(own, name) for name in own.__all__ if name[0].isupper()}


def _call(function: str, *arguments: object, **more: object) -> object:
    """Call a function of this package. It is imported now, because `rlsdk doctor` calls the hook without torch."""
    import rlsdk_envs

    return getattr(rlsdk_envs, function)(*arguments, **more)
