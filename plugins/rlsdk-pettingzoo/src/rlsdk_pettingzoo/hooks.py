"""The hooks that the entry point of this package names. They import neither PettingZoo nor torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlsdk.registry import hookimpl


@hookimpl
def environments() -> dict[str, Callable[..., object]]:
    """Namespace -> function that makes an environment of one role, for ids such as `pettingzoo-role/connect_four_v3`."""
    return {"pettingzoo": _refused, "pettingzoo-role": _role}


@hookimpl
def vectorizers() -> dict[str, Callable[..., object]]:
    """Name -> function that makes a vector environment with a row for each agent."""
    return {"pettingzoo": _agents}


def _refused(identity: str, **kwargs: Any) -> object:
    """Raise EnvironmentFault: only the vectorizer makes such an environment."""
    from rlsdk.errors import EnvironmentFault

    name = identity.partition("/")[2]
    raise EnvironmentFault(
        f"{identity!r} has a row for each of its agents, and wrappers, collectors, processes and videos need single"
        f" environments; leave them out, or take one agent against others: 'pettingzoo-role/{name}'"
    )


def _role(identity: str, **kwargs: Any) -> object:
    from rlsdk_pettingzoo.role import make_role_env

    return make_role_env(identity.partition("/")[2], **kwargs)


def _agents(env: object, n_envs: int, **kwargs: Any) -> object:
    from rlsdk_pettingzoo.agents import make_agents_vec_env

    return make_agents_vec_env(env, n_envs, **kwargs)
