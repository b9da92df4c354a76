"""Where a training begins and goes on: from a stored cursor, or with new episodes."""

from __future__ import annotations

from typing import Any

import torch

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.stored_cursor import StoredCursor
from rlsdk.environments.states import OpaqueValue, read_state
from rlsdk.environments.vector.connected import fingerprint_of
from rlsdk.environments.vector.on_device import OnDevice
from rlsdk.errors import EnvironmentFault, UsageError, fitting
from rlsdk.interfaces import NormalizesEpisodes, State
from rlsdk.preprocessing.earlier_files import as_given, environments_of
from rlsdk.records import ActingState, Cursor
from rlsdk.runtime.seeding import derive
from rlsdk.spaces import choices_of, dtype_of, map_leaves, shape_of
from rlsdk.training import begin_acting


def training_env(agent: AssembledAgent) -> Any:
    """What the agent's plan collects in: its environment, on its device, with observations prepared.

    Raises:
        UsageError: the agent has no environment, or one that only plays whole episodes.
    """
    if not agent.parts.plan.needs_environment:
        return agent.env
    if agent.env is None:
        raise UsageError("the agent has no environment; call set_env(env), or load(path, env=env)")
    agent.env.select_info((*agent.spec.info, *agent.parts.info))
    if isinstance(agent.parts.plan, NormalizesEpisodes):
        return agent.env  # its candidates act in numpy, wherever the networks are
    agent.env.require_steps()
    env = agent.env if agent.context.device == "cpu" else OnDevice(agent.env, agent.context.device)
    return agent.preprocessing.environment(env)


def begin(agent: AssembledAgent, env: Any) -> Cursor:
    """Set where a training of `agent` in `env` goes on from, and return the counts: a stored cursor's running episodes, or new
    ones; none for a plan without environment.

    Raises:
        ArtifactError: the stored episodes are not of such environments.
    """
    counts = agent.counts
    agent.acting = (_acting(agent, env),) if agent.parts.plan.needs_environment else ()
    agent.cursor = counts
    return counts


def _acting(agent: AssembledAgent, env: Any) -> ActingState[object]:
    stored, policy = agent.stored_cursor, agent.parts.behavior_policy
    if stored is not None and stored.episodes is not None:
        with fitting("the episodes in the file cannot be taken up"):
            env.set_state(environments_of(agent.preprocessing, stored.episodes, agent.parts))
            masks = _masks_of(env)
        space, count = agent.preprocessing.build_context.observation_space, env.num_envs
        width = sum(choices_of(agent.context.action_space))
        mask = torch.ones(count, width, dtype=torch.bool, device=agent.context.device) if masks else None
        like = map_leaves(
            space,
            lambda _, leaf: torch.empty(
                count, *shape_of(leaf), dtype=getattr(torch, dtype_of(leaf)), device=agent.context.device
            ),
        )
        seen = stored.observation(like, space, mask)
        seen = as_given(agent.preprocessing, seen, stored.episodes, agent.parts)
        return stored.carried_to(ActingState(seen, policy.initial_carry(count)))
    steps = agent.total_steps
    own = agent.env.seeds.first if agent.config.seed is None and not steps else None
    seed = derive(agent.seed, "environments", steps) if own is None else own
    acting = begin_acting(env, policy, seed)
    agent.preprocessing.episodes_begin()
    return acting if stored is None else stored.carried_to(acting)


def _masks_of(env: Any) -> bool:
    """Whether the environments, inside what prepares them, have action masks."""
    while not hasattr(env, "has_masks") and hasattr(env, "env"):
        env = env.env
    return bool(getattr(env, "has_masks", False))


def leave_episodes(agent: AssembledAgent) -> None:
    """Continue training with new episodes, as after the environments were used for something else."""
    if agent.cursor is not None:
        agent.stored_cursor = StoredCursor.of(agent.cursor, agent.acting)
        agent.cursor, agent.acting, agent.in_round = None, (), False


def leave_moved_episodes(agent: AssembledAgent) -> None:
    """Continue training with new episodes if the environments were stepped or reset since it ended: by the user, by another
    agent that shares them, or by a round that failed."""
    if agent.cursor is not None and (agent.in_round or _moved(agent)):
        leave_episodes(agent)


def _moved(agent: AssembledAgent) -> bool:
    return agent.run is None and agent.env is not None and agent.fingerprint != fingerprint_of(agent.env)


def stored_cursor(agent: AssembledAgent) -> StoredCursor | None:
    """The cursor of an agent, with its episodes if their state can be read; None before training began."""
    if agent.cursor is None:
        return agent.stored_cursor
    return StoredCursor.of(agent.cursor, agent.acting, episodes_of(agent))


def episodes_of(agent: AssembledAgent) -> State | None:
    """The state of the environments an agent trains in; None where it cannot be read, as in the middle of a round."""
    if agent.env is None or not agent.acting or agent.in_round or _moved(agent):
        return None
    try:
        state: State = read_state(training_env(agent))
        return state
    except (OpaqueValue, EnvironmentFault):  # unknown, closed or broken: what was learnt can be saved all the same
        return None


def restart_episodes(agent: AssembledAgent) -> Cursor:
    """End the running episodes as truncations and begin new ones, as a training does that is resumed from a file without
    them."""
    leave_episodes(agent)
    return begin(agent, training_env(agent))
