"""Changes of an existing agent: another environment, another number of copies, a copy of the agent."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from rlsdk.agent import training_state
from rlsdk.agent.agent_file import AgentT
from rlsdk.agent.assembled import (
    AssembledAgent,
    in_plain_modes,
    require_same_layers,
    take_over_modes,
)
from rlsdk.agent.assembly import assemble, build_parts
from rlsdk.environments import ConnectedEnv, connect
from rlsdk.environments.vector.connected import fingerprint_of, seed_spaces
from rlsdk.environments.wrapping import refuse_move, warn_of_statistics
from rlsdk.errors import UnsupportedSpaceError, UsageError, fitting, message_of, one_line
from rlsdk.runtime.lazy import of_sb3
from rlsdk.runtime.process import derive
from rlsdk.settings import evolve
from rlsdk.spaces import Box
from rlsdk.training.collector import require_groups


@in_plain_modes
def switch_environment(agent: AssembledAgent, env: object, *, force_reset: bool) -> None:
    """Replace the training environment of `agent` by `env`; arguments and errors are those of `Agent.set_env`."""
    if agent.run is not None:
        raise UsageError(
            "a training is running in the agent's environment; end it first (a callback that returns False does), then call"
            " set_env(env) and learn(..., reset_num_timesteps=False)"
        )
    envs = connect(env, agent.spec.default_envs)
    hint = f"; a new agent can begin with its policy: save it, then {agent.class_name}.load_policy(path, env)"
    require_same_spaces(agent, envs, "the new environment", hint)
    warn_of_statistics(envs, "the training environment")
    agent.masks.check_environment(envs)
    require_groups(envs.num_envs, agent.config.env_groups)
    envs.check_agent(agent, new=False)
    if envs.num_envs != agent.context.num_envs:
        _resize(agent, envs.num_envs)
    agent.met_masks = agent.trains_with_masks
    agent.env, agent.env_name = envs, env if isinstance(env, str) else envs.env_id
    agent.fingerprint = fingerprint_of(envs)
    # else the next `learn` continues from the last observation, in the new environment
    if force_reset:
        training_state.leave_episodes(agent)


def numpy_environment(agent: AssembledAgent) -> object:
    """The training environment with an interface for numpy arrays, of rlsdk-sb3; None without one. It is the same object until
    the environment is replaced."""
    if agent.env is None:
        return None
    if getattr(agent.numpy_env, "env", None) is not agent.env:
        make = of_sb3("NumpyVectorEnv", "get_env()")
        agent.numpy_env = make(agent.env, lambda: _user_moves(agent))
        seed_spaces(agent.numpy_env, derive(agent.seed, "spaces") % 2**31)
    return agent.numpy_env


def _user_moves(agent: AssembledAgent) -> None:
    if agent.run is not None:
        refuse_move()
    training_state.leave_episodes(agent)


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
    buffers = [agent.parts.buffer, *training_state.further_buffers(agent.parts).values()]
    # without an environment the buffers hold a data set and are built again
    recorded = not agent.parts.plan.needs_environment
    if not recorded and any(buffer is not None and len(buffer) for buffer in buffers):
        raise UsageError(
            f"the replay buffer is filled from {agent.context.num_envs} environments; give as many, not {num_envs}, or begin"
            f" with an empty buffer: save the agent, then {agent.class_name}.load(path, env=env)"
        )
    # buffers and gSDE matrices have one row per environment: parts are built again, and get the state of the earlier ones
    require_same_layers(agent, "the agent cannot be made for another number of environments")
    policy, algorithm = agent.preprocessing.policy_state(agent.parts.policy), agent.parts.algorithm.state_dict()
    further, before = training_state.further_states(agent.parts), agent.parts
    normalizer = agent.preprocessing.normalizer
    agent.context, agent.as_stored = replace(agent.context, num_envs=num_envs), False
    build_parts(agent)
    agent.preprocessing.load_policy_state(agent.parts.policy, policy)
    agent.parts.algorithm.load_state_dict(algorithm)
    training_state.restore_further(agent.parts, further)
    take_over_modes(agent.parts, before)
    if normalizer is not None and agent.preprocessing.normalizer is not None:
        agent.preprocessing.normalizer.freeze(normalizer.frozen)


@in_plain_modes
def copied(agent: AgentT, memo: dict[int, Any]) -> AgentT:
    """A copy of an agent, with a copy of its environment, that continues exactly as `agent` would.

    Raises:
        UsageError: the environment cannot be copied, or layers of the networks were replaced.
    """
    made = memo[id(agent)] = type(agent).__new__(type(agent))
    own = {name: deepcopy(value, memo) for name, value in vars(agent).items() if name != "_assembled"}
    vars(made).update({**own, "_assembled": _assembled(agent._assembled, memo)})
    return made


@in_plain_modes
def acting_copy(agent: AgentT, settings: Mapping[str, object]) -> AgentT:
    """A copy of an agent without environment and training; see `Agent.acting_copy`."""
    own, made = agent._assembled, type(agent).__new__(type(agent))
    state = training_state.sections_of(own, exclude=frozenset({"training"}))
    config, spaces = evolve(own.config, settings), (own.context.observation_space, own.context.action_space)
    twin = assemble(own.spec, config, spaces, own.context.num_envs, None, class_name=own.class_name)
    with fitting("the policy does not fit the settings of its copy"):
        twin.preprocessing.load_policy_state(twin.parts.policy, deepcopy(state["policy"]))
    twin.env_name, twin.seed, twin.met_masks = own.env_name, own.seed, own.trains_with_masks
    twin.streams.reseed(own.seed)  # `assemble` drew a seed if the setting is None
    vars(made).update(_assembled=twin)
    return made


def not_pickled(agent: object) -> UsageError:
    """The error for `pickle` and `copy.copy`, which agents do not support."""
    name = type(agent).__name__
    return UsageError(
        f"a {name} is not pickled, as reading a pickle can run any code: {name}.save(file) writes it, also into an io.BytesIO,"
        " and load(file) reads it; copy.deepcopy copies it"
    )


def _assembled(agent: AssembledAgent, memo: dict[int, Any]) -> AssembledAgent:
    """Assemble a new agent and restore the state of the other, as from a file. Networks, optimizers and kernels share memory,
    and separate deep copies of these objects would not."""
    # algorithms may hold the tensors that they load
    state = deepcopy(training_state.sections_of(agent, include=training_state.buffer_sections(agent.parts)))
    env = _copied_environment(agent.env, memo)
    spaces = agent.context.observation_space, agent.context.action_space
    made = assemble(agent.spec, agent.config, spaces, agent.context.num_envs, env, class_name=agent.class_name)
    made.env_name, made.seed, made.start_time = agent.env_name, agent.seed, agent.start_time
    made.met_masks = agent.trains_with_masks
    training_state.restore(made, state)
    if made.parts.buffer is not None:
        made.parts.buffer.load_state_dict(state["replay"])
    if "memories" in state:
        training_state.restore_further_buffers(made.parts, state["memories"])
    return made


def _copied_environment(env: ConnectedEnv | None, memo: dict[int, Any]) -> ConnectedEnv | None:
    try:
        return deepcopy(env, memo)
    except Exception as error:
        # environments may hold processes, windows or handles of other libraries
        cause = one_line(f"{type(error).__name__}: {message_of(error)}", 200)
        raise UsageError(
            f"the agent's environment cannot be copied ({cause}); save the agent and load it with another environment"
        ) from error
