"""Copies of an agent that act in collectors and do not learn."""

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
from rlsdk.spaces import Space

ConfigT = TypeVar("ConfigT", bound=AgentConfig, default=AgentConfig)


@attrs.frozen
class ActingCopy(Generic[ConfigT]):
    """A function that a collector calls to make an agent with the same settings for the collector's environments."""

    spec: AlgorithmSpec
    config: ConfigT
    num_envs: int
    """The number of environments of all collectors, because steps are counted over all of them."""
    spaces: tuple[Space, Space]
    """The spaces of the learner, whose weights belong to the entries of Dicts in its order."""

    def __call__(self, env: VectorEnv) -> AssembledAgent[ConfigT]:
        """The agent for the environments of one collector; the learner sends its weights at the start of every round."""
        return assemble(self.spec, self.config, self.spaces, self.num_envs, connect(env))


def acting_copies(agent: AssembledAgent) -> ActingCopy | None:
    """The function that makes agents in the collectors of `agent`; None if its environments are not in collectors.

    Raises:
        UsageError: layers were replaced, so that the settings no longer describe the networks.
    """
    if not isinstance(agent.env, CollectorsVectorEnv):
        return None
    require_same_layers(agent, "collectors cannot have copies of the policy")
    context, config = agent.context, evolve(agent.config, {"env_groups": 1})
    return ActingCopy(agent.spec, config, context.num_envs, (context.observation_space, context.action_space))
