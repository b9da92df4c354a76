"""Environments of several agents (PettingZoo): one policy for all agents, or one agent against others.

Modules are imported on first use, so that listing plugins is fast.
"""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_pettingzoo.agents import AgentsVector as AgentsVector
    from rlsdk_pettingzoo.agents import make_agents_vec_env as make_agents_vec_env
    from rlsdk_pettingzoo.evaluation import evaluate_roles as evaluate_roles
    from rlsdk_pettingzoo.role import OneRole as OneRole
    from rlsdk_pettingzoo.role import make_role_env as make_role_env

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(
    __name__,
    AgentsVector="rlsdk_pettingzoo.agents",
    OneRole="rlsdk_pettingzoo.role",
    evaluate_roles="rlsdk_pettingzoo.evaluation",
    make_agents_vec_env="rlsdk_pettingzoo.agents",
    make_role_env="rlsdk_pettingzoo.role",
)
