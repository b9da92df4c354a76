"""Agents in collectors: copies that act and learn nothing."""

from __future__ import annotations

from typing import Generic

import attrs
from typing_extensions import TypeVar

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.assembly import assemble
from rlsdk.agent.networks import require_same_layers
from rlsdk.environments import CollectorsVectorEnv, connect
from rlsdk.interfaces import VectorEnv
from rlsdk.registry import AlgorithmSpec
from rlsdk.settings import evolve
from rlsdk.settings.agent_config import AgentConfig

ConfigT = TypeVar("ConfigT", bound=AgentConfig, default=AgentConfig)


@attrs.frozen
class ActingCopy(Generic[ConfigT]):
    """Makes, in a collector, an agent with the same settings for its environments."""

    spec: AlgorithmSpec
    config: ConfigT
    num_envs: int
    """Of all collectors: what counts steps counts those of all environments."""

    def __call__(self, env: VectorEnv) -> AssembledAgent[ConfigT]:
        """Its weights come with every round."""
        envs = connect(env)
        spaces = envs.observation_space, envs.action_space
        return assemble(self.spec, self.config, spaces, self.num_envs, envs)


def acting_copies(agent: AssembledAgent) -> ActingCopy | None:
    """What makes the agents of collectors; None where the environments are in none.

    Raises:
        UsageError: layers were replaced, so the settings no longer describe the networks.
    """
    if not isinstance(agent.env, CollectorsVectorEnv):
        return None
    require_same_layers(agent, "collectors cannot have copies of the policy")
    return ActingCopy(agent.spec, evolve(agent.config, {"env_groups": 1}), agent.context.num_envs)
