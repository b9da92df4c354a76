"""Copies of agents: whole ones for `copy.deepcopy`, and ones that only act."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Protocol, TypeVar

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.assembly import assemble
from rlsdk.agent.further_states import has_memories, restore_memories
from rlsdk.agent.training_state import restore, training_state
from rlsdk.environments import ConnectedEnv
from rlsdk.errors import UsageError, fitting, message_of, one_line
from rlsdk.settings import evolve


class HasAssembled(Protocol):
    """`rlsdk.Agent` or a subclass of it."""

    _assembled: AssembledAgent


AgentT = TypeVar("AgentT", bound=HasAssembled)


def copied(agent: AgentT, memo: dict[int, Any]) -> AgentT:
    """A copy of an agent, with a copy of its environment, that continues exactly as `agent` would.

    Raises:
        UsageError: the environment cannot be copied, or layers of the networks were replaced.
    """
    made = type(agent).__new__(type(agent))
    memo[id(agent)] = made
    own = {name: deepcopy(value, memo) for name, value in vars(agent).items() if name != "_assembled"}
    vars(made).update({**own, "_assembled": _assembled(agent._assembled, memo)})
    return made


def acting_copy(agent: AgentT, settings: Mapping[str, object]) -> AgentT:
    """A copy of an agent without environment and training; see `Agent.acting_copy`."""
    own, made = agent._assembled, type(agent).__new__(type(agent))
    state = training_state(own, exclude=frozenset({"training"}))
    config, spaces = evolve(own.config, settings), (own.context.observation_space, own.context.action_space)
    twin = assemble(own.spec, config, spaces, own.context.num_envs, None, class_name=own.class_name)
    with fitting("the policy does not fit the settings of its copy"):
        twin.preprocessing.load_policy_state(twin.parts.policy, deepcopy(state.policy))
    twin.env_name, twin.seed, twin.met_masks = own.env_name, own.seed, state.masks
    twin.streams.reseed(own.seed)
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
    """Assemble a new agent and restore the state of the other, as from a file. Networks, optimisers and kernels share memory,
    and separate deep copies of these objects would not."""
    state = training_state(agent, include=frozenset({"replay"}) if has_memories(agent.parts) else frozenset())
    env = _copied_environment(agent.env, memo)
    spaces = agent.context.observation_space, agent.context.action_space
    made = assemble(agent.spec, agent.config, spaces, agent.context.num_envs, env, class_name=agent.class_name)
    made.env_name, made.seed, made.start_time = agent.env_name, agent.seed, agent.start_time
    made.met_masks = state.masks
    learning = None if state.learning is None else state.learning.state_dict()
    restore(made, deepcopy(state.policy), deepcopy(learning))
    if state.replay is not None and made.parts.buffer is not None:
        made.parts.buffer.load_state_dict(deepcopy(state.replay))
    if state.memories is not None:
        restore_memories(made.parts, deepcopy(state.memories))
    return made


def _copied_environment(env: ConnectedEnv | None, memo: dict[int, Any]) -> ConnectedEnv | None:
    try:
        return deepcopy(env, memo)
    except Exception as error:  # environments may hold processes, windows or handles of other libraries
        cause = one_line(f"{type(error).__name__}: {message_of(error)}", 200)
        raise UsageError(
            f"the agent's environment cannot be copied ({cause}); save the agent and load it with another environment"
        ) from error
