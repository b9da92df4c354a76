"""The hooks that the entry point names: environments by their ids, and functions that make vector environments."""

from __future__ import annotations

from collections.abc import Callable

from rlsdk.registry import hookimpl


@hookimpl
def environment_makers() -> dict[str, Callable[..., object]]:
    """Namespace -> function that makes an environment. Importing this package has registered the ids with gymnasium."""
    import gymnasium

    return {"rlsdk": gymnasium.make}


@hookimpl
def vectorizers() -> dict[str, Callable[..., object]]:
    """Name -> function of an environment and a number that makes a vector environment."""
    from rlsdk_envs.c_vector import make_c_vec_env
    from rlsdk_envs.envpool_vector import make_envpool_vec_env
    from rlsdk_envs.torch_vector import make_torch_vec_env

    return {"c": make_c_vec_env, "native": make_envpool_vec_env, "torch": make_torch_vec_env}
