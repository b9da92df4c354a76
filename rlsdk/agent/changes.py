"""Replaces the environment of an existing agent: checks that it fits, and rebuilds networks if the number of copies differs."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.assembly import build_parts
from rlsdk.agent.collecting import require_collecting
from rlsdk.agent.further_states import further_states, memories_of, restore_further
from rlsdk.agent.networks import require_same_layers, take_over_modes
from rlsdk.agent.resumption import leave_episodes
from rlsdk.agent.torch_modes import in_plain_modes
from rlsdk.environments import ConnectedEnv, NumpyVectorEnv, connect, fingerprint_of
from rlsdk.environments.env_in_training import EnvInTraining, refuse_move
from rlsdk.environments.wrapper_settings import split_wrapper_settings, warn_of_statistics
from rlsdk.errors import UnsupportedSpaceError, UsageError
from rlsdk.runtime.seeding import derive
from rlsdk.spaces import Box
from rlsdk.training.groups import require_groups


@in_plain_modes
def switch_environment(agent: AssembledAgent, env: object, *, force_reset: bool) -> None:
    """Replace the training environment of `agent` by `env`; arguments and errors are those of `Agent.set_env`."""
    if agent.run is not None:
        raise UsageError(
            "a training is running in the agent's environment; end it first (a callback that returns False does), then call"
            " set_env(env) and learn(..., reset_num_timesteps=False)"
        )
    bare, requests = split_wrapper_settings(env)
    envs = connect(bare, agent.spec.default_envs)
    hint = f"; a new agent can begin with its policy: save it, then {agent.class_name}.load_policy(path, env)"
    require_same_spaces(agent, envs, "the new environment", hint)
    warn_of_statistics(envs, "the training environment")
    agent.masks.check_environment(envs)
    if any(request.applied_to(agent.config) != agent.config for request in requests):
        raise UsageError(
            "normalisation and frame stacking are settings of the agent, chosen when it is made; this agent has"
            f" normalize = {agent.config.normalize}, frame_stack = {agent.config.frame_stack}"
        )
    require_groups(envs.num_envs, agent.config.env_groups)
    require_collecting(agent, envs)
    if envs.num_envs != agent.context.num_envs:
        _resize(agent, envs.num_envs)
    agent.met_masks = agent.trains_with_masks
    agent.env, agent.env_name = envs, bare if isinstance(bare, str) else envs.env_id
    agent.fingerprint = fingerprint_of(envs)
    if force_reset:
        leave_episodes(agent)


def numpy_environment(agent: AssembledAgent) -> NumpyVectorEnv | None:
    """The training environment with an interface for numpy arrays; None without one. It is the same object until the
    environment is replaced."""
    if agent.env is None:
        return None
    known = agent.numpy_env
    if known is None or known.env is not agent.env:
        seed = derive(agent.seed, "spaces") % 2**31
        known = agent.numpy_env = NumpyVectorEnv(agent.env, lambda: _user_moves(agent), seed)
    return known


def env_for_users(agent: AssembledAgent) -> ConnectedEnv | None:
    """The environment for users: during training, stepping or resetting it raises an error."""
    return agent.env if agent.env is None or agent.run is None else cast("ConnectedEnv", EnvInTraining(agent.env))


def _user_moves(agent: AssembledAgent) -> None:
    if agent.run is not None:
        refuse_move()
    leave_episodes(agent)


def require_same_spaces(agent: AssembledAgent, envs: object, what: str, hint: str = "") -> None:
    """Raise UnsupportedSpaceError if `envs` has other spaces than the agent; the message begins with `what`, its name, and ends
    with `hint`."""
    for name in ("observation_space", "action_space"):
        mine, theirs = getattr(agent.context, name), getattr(envs, name)
        if mine != theirs:
            there, here = (f"{space}{_bounds(space) if str(mine) == str(theirs) else ''}" for space in (theirs, mine))
            raise UnsupportedSpaceError(f"{what} has the {name} {there}, the agent was made for {here}{hint}")


def _bounds(space: object) -> str:
    """The bounds of a Box, which its text leaves out."""
    return f" from {space.low.min()} to {space.high.max()}" if isinstance(space, Box) and space.low.size else ""


def _resize(agent: AssembledAgent, num_envs: int) -> None:
    memories = [agent.parts.buffer, *memories_of(agent.parts).values()]
    recorded = not agent.parts.plan.needs_environment  # then the buffers hold a data set and are built again
    if not recorded and any(memory is not None and len(memory) for memory in memories):
        raise UsageError(
            f"the replay buffer is filled from {agent.context.num_envs} environments; give as many, not {num_envs}, or begin"
            f" with an empty buffer: save the agent, then {agent.class_name}.load(path, env=env)"
        )
    require_same_layers(agent, "the agent cannot be made for another number of environments")
    policy, algorithm = agent.preprocessing.policy_state(agent.parts.policy), agent.parts.algorithm.state_dict()
    further, before, normalizer = further_states(agent.parts), agent.parts, agent.preprocessing.normalizer
    agent.context, agent.as_stored = replace(agent.context, num_envs=num_envs), False
    build_parts(agent)
    agent.preprocessing.load_policy_state(agent.parts.policy, policy)
    agent.parts.algorithm.load_state_dict(algorithm)
    restore_further(agent.parts, further)
    take_over_modes(agent.parts, before)
    if normalizer is not None and agent.preprocessing.normalizer is not None:
        agent.preprocessing.normalizer.freeze(normalizer.frozen)
