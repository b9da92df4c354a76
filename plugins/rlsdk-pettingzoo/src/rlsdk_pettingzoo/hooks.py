"""The hooks that the entry point of this package names. They import neither PettingZoo nor torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlsdk.registry import hookimpl


@hookimpl
def environments() -> dict[str, Callable[..., object]]:
    """Namespace -> function that makes an environment of one role, for ids such as `pettingzoo-role/connect_four_v3`."""
    return {"pettingzoo-role": _role}


@hookimpl
def vectorizers() -> dict[str, Callable[..., object]]:
    """Name -> function that makes a vector environment with a row for each agent."""
    return {"pettingzoo": _agents}


def _role(identity: str, **kwargs: Any) -> object:
    from rlsdk_pettingzoo.role import make_role_env

    return make_role_env(identity.partition("/")[2], **kwargs)


def _agents(env: object, n_envs: int, **kwargs: Any) -> object:
    from rlsdk_pettingzoo.agents import make_agents_vec_env

    return make_agents_vec_env(env, n_envs, **kwargs)
