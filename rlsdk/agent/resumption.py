"""Begins or continues a training: from a stored cursor, or with new episodes."""

from __future__ import annotations

import torch

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.stored_cursor import StoredCursor
from rlsdk.environments import OpaqueValue, fingerprint_of, on_device, read_state
from rlsdk.errors import EnvironmentFault, UsageError, fitting
from rlsdk.interfaces import CapturesState, NormalizesEpisodes, State, VectorEnv
from rlsdk.interfaces.abilities import ability
from rlsdk.records import ActingState, Cursor, Observation
from rlsdk.runtime.seeding import derive
from rlsdk.spaces import choices_of, dtype_of, map_leaves, shape_of
from rlsdk.training import split_acting


def training_env(agent: AssembledAgent) -> VectorEnv | None:
    """The environment in which the agent's plan collects: its tensors are on the agent's device, and observations are
    preprocessed. A plan that needs no environment gets `agent.env`, which may be None.

    Raises:
        UsageError: the agent has no environment, or one that only runs whole episodes.
    """
    env, plan = agent.env, agent.parts.plan
    if not plan.needs_environment:
        return env
    if env is None:
        raise UsageError("the agent has no environment; call set_env(env), or load(path, env=env)")
    env.select_info((*agent.spec.info, *agent.parts.info))
    if isinstance(plan, NormalizesEpisodes):
        return env  # the candidates of this plan act in numpy on any device
    env.require_steps()
    return agent.preprocessing.environment(on_device(env, agent.context.device))


def begin(agent: AssembledAgent, env: VectorEnv | None) -> Cursor:
    """Set the acting state and cursor from which `agent` continues in `env`, and return the cursor.

    The agent continues the running episodes of a stored cursor, or begins new ones. A plan without environment has no episodes.

    Raises:
        ArtifactError: the stored episodes do not fit the environments.
    """
    counts = agent.counts
    agent.acting = () if env is None or not agent.parts.plan.needs_environment else _acting(agent, env)
    agent.cursor = counts
    return counts


def _acting(agent: AssembledAgent, env: VectorEnv) -> tuple[ActingState[object], ...]:
    """The acting state of each group of environments."""
    stored, policy, groups = agent.stored_cursor, agent.parts.behavior_policy, agent.config.env_groups
    if stored is None or stored.episodes is None:
        acting = split_acting(env.reset(_first_seed(agent)), policy, groups)
        agent.preprocessing.episodes_begin()
        return acting if stored is None else stored.carried_to(acting)
    observation = _taken_up(agent, env, stored, stored.episodes)
    return stored.carried_to(split_acting(observation, policy, groups))


def _first_seed(agent: AssembledAgent) -> int | None:
    """The seed with which the environments are reset, derived from the agent's seed. The first training of an agent whose
    setting `seed` is None uses the seed that the environments were made with, if there is one."""
    steps = agent.total_steps
    own = agent.env.seeds.first if agent.env is not None and agent.config.seed is None and not steps else None
    return derive(agent.seed, "environments", steps) if own is None else own


def _taken_up(agent: AssembledAgent, env: VectorEnv, stored: StoredCursor, episodes: State) -> Observation:
    """Restore the running episodes of a file in the environments, and return the observation [B] to act on next.

    Raises:
        ArtifactError: the episodes do not fit the environments.
    """
    with fitting("the episodes in the file cannot be taken up"):
        resuming = ability(env, CapturesState)
        if resuming is None:
            raise ValueError(f"{type(env).__name__} has no set_state")
        environments: State = episodes["environments"]
        resuming.set_state(environments)
        masks = agent.env is not None and agent.env.has_masks
    device, count, space = agent.context.device, env.num_envs, agent.preprocessing.build_context.observation_space
    width = sum(choices_of(agent.context.action_space))
    mask = torch.ones(count, width, dtype=torch.bool, device=device) if masks else None
    like = map_leaves(
        space, lambda _, leaf: torch.empty(count, *shape_of(leaf), dtype=getattr(torch, dtype_of(leaf)), device=device)
    )
    return stored.observation(like, space, mask)


def leave_episodes(agent: AssembledAgent) -> None:
    """Make the training continue with new episodes: at the next `learn`, or at the next round if a training is running."""
    if agent.run is None:
        _forget_episodes(agent)
    else:
        agent.run.new_episodes = True


def _forget_episodes(agent: AssembledAgent) -> None:
    """Store the counts and the carry of a training without its episodes."""
    if agent.cursor is not None:
        agent.stored_cursor = StoredCursor.of(agent.cursor, agent.acting)
        agent.cursor, agent.acting, agent.in_round = None, (), False


def leave_moved_episodes(agent: AssembledAgent) -> None:
    """Make the training continue with new episodes if the environments were stepped or reset since it ended.

    The user, another agent with the same environments, or a round that failed may have stepped them.
    """
    if agent.cursor is not None and (agent.in_round or _moved(agent)):
        leave_episodes(agent)


def _moved(agent: AssembledAgent) -> bool:
    return agent.run is None and agent.env is not None and agent.fingerprint != fingerprint_of(agent.env)


def stored_cursor(agent: AssembledAgent) -> StoredCursor | None:
    """The cursor of an agent, with its running episodes if their state can be read; None before training began."""
    if agent.cursor is None:
        return agent.stored_cursor
    return StoredCursor.of(agent.cursor, agent.acting, episodes_of(agent))


def episodes_of(agent: AssembledAgent) -> State | None:
    """The state of the environments in which an agent trains; None if it cannot be read, for example during a round."""
    if agent.env is None or not agent.acting or agent.in_round or _moved(agent):
        return None
    try:
        state: State = read_state(training_env(agent))
        return state
    except (OpaqueValue, EnvironmentFault):  # of an unknown kind, closed or broken: the rest of the agent can be saved
        return None


def restart_episodes(agent: AssembledAgent) -> Cursor:
    """End the running episodes as truncations, begin new ones, and return the new cursor. A training that is resumed from a
    file without running episodes begins in the same way.

    Raises:
        UsageError: a round is being collected in the environments.
    """
    if agent.run is not None and agent.in_round:
        raise UsageError(
            "restart_episodes cannot move environments that a round is collecting in; call it between rounds, as in on_report,"
            " or call end_episodes: the next round begins new episodes"
        )
    _forget_episodes(agent)
    return begin(agent, training_env(agent))
