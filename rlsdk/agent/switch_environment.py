"""Another environment for an agent that exists: what must be the same, and what is built again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlsdk.agent.creation import build_parts
from rlsdk.agent.networks import require_same_layers
from rlsdk.agent.resumption import leave_episodes
from rlsdk.agent.torch_modes import in_plain_modes
from rlsdk.environments import NumpyVectorEnv, connect
from rlsdk.environments.requests import without_requests
from rlsdk.environments.standing import standing_of
from rlsdk.errors import UnsupportedSpaceError, UsageError

if TYPE_CHECKING:
    from rlsdk.agent import Agent


@in_plain_modes
def switch_environment(agent: Agent, env: Any, *, force_reset: bool) -> None:
    """Let `agent` train on `env` from now on; arguments and errors as `Agent.set_env`."""
    bare, requests = without_requests(env)
    envs = connect(bare, agent.spec.default_envs)
    require_same_spaces(agent, envs, "the new environment")
    agent.masks.check_environment(envs)
    if any(request.applied_to(agent.config) != agent.config for request in requests):
        raise UsageError(
            "normalisation and frame stacking are settings of the agent, chosen when it is made; this agent has"
            f" normalize = {agent.config.normalize}, frame_stack = {agent.config.frame_stack}"
        )
    if envs.num_envs != agent.facts.num_envs:
        _resize(agent, envs.num_envs)
    agent._env, agent.env_name = envs, bare if isinstance(bare, str) else envs.recipe
    agent.standing = standing_of(envs)
    if force_reset:
        leave_episodes(agent)


def numpy_environment(agent: Agent) -> NumpyVectorEnv | None:
    """The training environment, to be stepped with numpy arrays; the same object until it is replaced."""
    if agent.env is None:
        return None
    known = agent.numpy_env
    if known is None or known.env is not agent.env:
        known = agent.numpy_env = NumpyVectorEnv(agent.env, lambda: _user_moves(agent))
    return known


def _user_moves(agent: Agent) -> None:
    if agent.run is not None:
        raise UsageError("a training is going on in this environment; give what steps during training one of its own")
    leave_episodes(agent)


def require_same_spaces(agent: Agent, envs: Any, what: str) -> None:
    """Raises UnsupportedSpaceError when `envs` has other spaces than the agent."""
    for name in ("observation_space", "action_space"):
        mine, theirs = getattr(agent.facts, name), getattr(envs, name)
        if mine != theirs:
            raise UnsupportedSpaceError(f"{what} has the {name} {theirs}, the agent was made for {mine}")


def _resize(agent: Agent, num_envs: int) -> None:
    if agent.parts.buffer is not None and len(agent.parts.buffer):
        raise UsageError(
            f"the replay buffer is filled from {agent.facts.num_envs} environments; give as many, not {num_envs}"
        )
    require_same_layers(agent, "the agent cannot be made for another number of environments")
    policy, algorithm = dict(agent.parts.policy.state_dict()), agent.parts.algorithm.state_dict()
    agent.facts = replace(agent.facts, num_envs=num_envs)
    build_parts(agent)
    agent.parts.policy.load_state_dict(policy)
    agent.parts.algorithm.load_state_dict(algorithm)
