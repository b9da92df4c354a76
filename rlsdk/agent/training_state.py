"""The state of an agent as sections: all that files store and that resuming a training needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import torch
from torch import Tensor, nn

from rlsdk.agent import agent_file
from rlsdk.agent.assembled import AssembledAgent, StoredCursor, in_plain_modes, require_same_layers
from rlsdk.environments import OpaqueValue, on_device
from rlsdk.environments.states.capture import read_state
from rlsdk.environments.vector.connected import fingerprint_of
from rlsdk.errors import ArtifactError, EnvironmentFault, RlsdkError, SettingsError, UsageError, fitting, shown, suggest
from rlsdk.interfaces import Buffer, Parts, PlanAbilities, State, Stateful, VectorEnv, VectorEnvAbilities
from rlsdk.interfaces.abilities import ability, plays_episodes, restore_state, stored_state
from rlsdk.records import ActingState, Cursor, Observation
from rlsdk.registry import AlgorithmSpec
from rlsdk.runtime.memory import require_memory
from rlsdk.runtime.process import MAX_COUNT, count_in, derive
from rlsdk.spaces import choices_of, dtype_of, map_leaves, nbytes, shape_of
from rlsdk.storage import archive
from rlsdk.storage.journal import FOLDER, join_parts
from rlsdk.storage.tensors import nested_state
from rlsdk.training import split_acting
from rlsdk.training.run import EpisodeStatistics
from rlsdk.tree import flatten

SECTIONS = ("policy", "training", "replay")
NOTHING: frozenset[str] = frozenset()


def sections_of(agent: AssembledAgent, *, exclude: Set[str] = NOTHING, include: Set[str] = NOTHING) -> dict[str, State]:
    """The sections of a file of the agent: `policy` always, `training` unless excluded, `replay` and `memories` (the
    additional buffers) only if `replay` is included. Training changes the tensors: write or copy them before it continues.

    Raises:
        SettingsError: a section is unknown, or the policy is excluded. UsageError: there is no replay buffer to include, or
        layers were replaced, so that the settings no longer describe the networks.
    """
    include = {"replay" if name == "replay_buffer" else name for name in include}
    for name in sorted(exclude | include):
        if name not in SECTIONS:
            raise SettingsError(f"an agent file has no section {name!r}; {suggest(name, SECTIONS)}")
    if "policy" in exclude:
        raise SettingsError("the policy cannot be excluded: without it a file is not an agent")
    require_same_layers(agent, "the agent cannot be saved or exported")
    sections: dict[str, State] = {"policy": agent.preprocessing.policy_state(agent.parts.policy)}
    if "training" not in exclude:
        sections["training"] = _training(agent)
    if "replay" in include:
        if not buffer_sections(agent.parts):
            raise UsageError(f"{agent.spec.id} has no replay buffer to include")
        # a buffer that is still in the agent's file would be written empty
        restore_replay(agent)
        if agent.parts.buffer is not None:
            sections["replay"] = agent.parts.buffer.state_dict()
        if further := further_buffers(agent.parts):
            sections["memories"] = {name: dict(buffer.state_dict()) for name, buffer in further.items()}
    return sections


def _training(agent: AssembledAgent) -> State:
    """The section `training`: what resuming a training needs in addition to the policy. `restore` reads it."""
    log = agent.stored_log if agent.run is None else agent.run.episode_statistics.state_dict()
    counts, cursor = {"step_offset": agent.step_offset}, stored_cursor(agent)
    state: dict[str, object] = {
        "algorithm": agent.parts.algorithm.state_dict(),
        "streams": agent.streams.state_dict(),
        "counts": counts,
        **further_states(agent.parts),
    }
    if cursor is not None:
        counts |= {"env_steps": cursor.counts.env_steps, "updates": cursor.counts.updates}
        state |= cursor.state_dict()
    if agent.ahead:
        state["ahead"] = {f"{number:03d}": dict(weights) for number, weights in enumerate(agent.ahead)}
    if frozen := frozen_of(agent):
        state["frozen"] = frozen
    return state if log is None else {**state, "log": log}


def frozen_of(agent: AssembledAgent) -> State:
    """The entry `frozen` of the section `training`: the frozen statistics of the normalizer; empty if all change."""
    normalizer = agent.preprocessing.normalizer
    return normalizer.frozen if normalizer is not None and any(normalizer.frozen.values()) else {}


def restore(agent: AssembledAgent, sections: State, changed: Iterable[str] = ()) -> None:
    """Restore the sections `policy` and, if there is one, `training` of a file in an agent that was just assembled.

    Raises:
        ArtifactError: they do not fit the agent; the message names the settings that were `changed`.
    """
    names = ", ".join(sorted(set(changed) - {"device"}))
    given = (
        f"the file does not fit the {names} that load was given; give what the agent was made with, or make a new one"
    )
    with fitting(given if names else "the file does not fit its own settings"):
        parts, policy, learning = agent.parts, sections["policy"], sections.get("training")
        agent_file.require_finite(lambda: agent.preprocessing.policy_state(parts.policy), policy, "policy")
        agent.preprocessing.load_policy_state(parts.policy, policy)
        if not learning:
            return
        agent_file.require_finite(parts.algorithm.state_dict, learning["algorithm"], "algorithm")
        parts.algorithm.load_state_dict(learning["algorithm"])
        restore_further(parts, learning)
        agent.streams.load_state_dict(learning["streams"])
        counts, log, frozen = learning["counts"], learning.get("log"), learning.get("frozen", {})
        cursor = StoredCursor.from_state(counts, learning) if "env_steps" in counts else None
        # a damaged one is an error of the file, not of the next `learn`
        if log is not None:
            EpisodeStatistics(1).load_state_dict(log)
        ahead = tuple(entry for _, entry in sorted(learning.get("ahead", {}).items()))
        for weights in ahead:
            count_in(weights, "env_steps")
            agent_file.require_finite(parts.behavior_policy.state_dict, weights["policy"], "ahead")
            agent_file.require_same_shapes(parts.behavior_policy.state_dict(), weights["policy"], "ahead")
        if frozen and agent.preprocessing.normalizer is not None:
            agent.preprocessing.normalizer.freeze(frozen)
        # negative after `num_timesteps` was raised
        agent.step_offset = count_in(counts, "step_offset", -MAX_COUNT)
        agent.ahead, agent.stored_cursor, agent.stored_log = ahead, cursor, log


PLAN = "plan"
"""The key of the state of a plan in the section `training`; the key of the other states is `states`."""


def further_buffers(parts: Parts) -> dict[str, Buffer[object, object]]:
    """Additional buffers by name; they are saved only when the replay buffer is."""
    return {name: state for name, state in parts.states.items() if isinstance(state, Buffer)}


def buffer_sections(parts: Parts) -> frozenset[str]:
    """The argument `include` of `sections_of` for all buffers, which files store only on request; empty without buffers."""
    return frozenset({"replay"} if parts.buffer is not None or further_buffers(parts) else ())


def further_states(parts: Parts) -> dict[str, State]:
    """Entries `states` and `plan` of the section `training`; most agents have none."""
    states = {name: stored_state(state) for name, state in parts.states.items() if not isinstance(state, Buffer)}
    plan: dict[str, State] = {PLAN: stored_state(parts.plan)} if isinstance(parts.plan, Stateful) else {}
    return {**({"states": states} if states else {}), **plan}


def restore_further(parts: Parts, section: State) -> None:
    """Restore the states that `further_states` returned. Raises KeyError or ValueError if one is missing or does not fit."""
    restore_states(parts, section)
    if isinstance(parts.plan, Stateful):
        restore_state(parts.plan, section[PLAN])


def restore_states(parts: Parts, section: State) -> None:
    """Restore the states of `Parts.states`, except buffers, from the entry `states`."""
    for name, state in parts.states.items():
        if not isinstance(state, Buffer):
            stored = section["states"][name]
            agent_file.require_finite(partial(stored_state, state), stored, name)
            restore_state(state, stored)


def restore_further_buffers(parts: Parts, section: State) -> None:
    """Restore the section `memories`. Raises KeyError if a buffer is missing, and the errors of the buffers."""
    for name, buffer in further_buffers(parts).items():
        buffer.load_state_dict(section[name])


def move(parts: Parts, device: str) -> None:
    """Move the networks in `Parts.states` to a device."""
    for state in parts.states.values():
        if isinstance(state, nn.Module):
            state.to(device)


KIND = "rlsdk-replay"
SECTION = "replay"
FURTHER = "memories"
"""The section with the additional buffers in `Parts.states`."""


def stored_buffers(
    source: Path | IO[bytes], document: agent_file.FileManifest, known: State, spec: AlgorithmSpec
) -> dict[str, State]:
    """The sections `replay` and `memories` of an agent file. They are read when they are needed, so that loading an agent for
    prediction is fast.

    `document` is the manifest of the file before `upgraded`. `known` are the sections if they were read with the rest: those of
    a file object, because it may be closed later.
    """
    if not known and isinstance(source, Path):
        buffers = (SECTION, FURTHER)
        # a plugin that upgrades its files gets the whole file, as it may derive one section from another
        everything = ("policy", "training", *buffers) if spec.upgrade is not None else buffers
        again, stored = archive.read(source, everything, kind=agent_file.KIND)
        if again != document:
            raise ArtifactError(
                f"{source} has changed since the agent was loaded from it; load(path, env=env) reads it immediately"
            )
        _, known = agent_file.upgraded(again, stored, spec)
    found = {name: known[name] for name in (SECTION, FURTHER) if name in known}
    return {**found, SECTION: _whole(document, found[SECTION], source)} if SECTION in found else found


def require_room(agent: AssembledAgent) -> None:
    """Check that a rollout, or a batch and an empty replay buffer, fit into memory; a filled buffer has its memory already.

    Raises:
        ResourceError: it will not fit.
    """
    context, plan, buffer = agent.context, agent.parts.plan, agent.parts.buffer
    # its memory is in use already
    filled = buffer is not None and len(buffer) > 0
    if (rollouts := ability(plan, PlanAbilities, "n_steps")) is not None:
        what, advice = f"a rollout of {rollouts.n_steps} steps", "lower n_steps, or give fewer environments"
        require_memory(rollouts.n_steps * context.num_envs * nbytes(context.observation_space), what, advice)
    elif count := getattr(agent.config, "batch_size", 0):
        # a minibatch of a rollout is never larger than the rollout
        what = f"a batch of {shown(count, 60)} transitions"
        needed = 2 * count * nbytes(context.observation_space)
        # a smaller batch fits where the buffer does
        if buffer is None or needed > buffer.bytes_required():
            require_memory(needed, what, "lower batch_size")
    if buffer is not None and not filled:
        advice = "lower buffer_size, or set optimize_memory_usage=True"
        require_memory(buffer.bytes_required(), "the replay buffer", advice)


@in_plain_modes
def restore_replay(agent: AssembledAgent) -> None:
    """Restore the replay buffer from the file that the agent was loaded from, unless this has been done.

    Raises:
        ArtifactError: the file is missing or has changed, or its buffer does not fit the agent.
    """
    if agent.pending_replay is None:
        return
    found = agent.pending_replay()
    if SECTION in found and agent.parts.buffer is not None:
        require_room(agent)
        with _refilling(agent, "replay buffer"):
            agent.parts.buffer.load_state_dict(found[SECTION])
    if FURTHER in found:
        with _refilling(agent, "further buffer"):
            restore_further_buffers(agent.parts, found[FURTHER])
    agent.pending_replay = None


@contextmanager
def _refilling(agent: AssembledAgent, what: str) -> Iterator[None]:
    """Turn errors inside the block, which restores a buffer of the file, into an ArtifactError.

    The error is about the file if settings and number of environments are those of the file, else about the new ones.
    """
    if agent.as_stored:
        with agent_file.blaming_the_file(True), fitting(f"the {what} in the file does not fit"):
            yield
        return
    try:
        yield
    except Exception as error:
        # with other settings, restoring a buffer may raise any error
        reason = f" ({error})" if isinstance(error, RlsdkError) else ""
        raise ArtifactError(
            f"the {what} in the file does not fit the settings or the number of environments given now{reason}; give those that"
            f" it was saved with"
        ) from None


def _whole(document: Mapping[str, object], state: State, source: Path | IO[bytes]) -> State:
    """The state of the replay buffer, with its rows from the folder next to the file if they are stored there."""
    parts = document.get("replay_parts")
    if parts is None:
        return state
    if not isinstance(source, Path):
        raise ArtifactError("the rows of the replay buffer are in a folder next to the file; load it by its path")
    if not isinstance(parts, list) or not all(isinstance(name, str) for name in parts):
        raise ArtifactError("the file is damaged: its manifest names no parts of a replay buffer")
    return join_parts(state, source.parent / FOLDER, parts)


def save_replay_buffer(agent: AssembledAgent, path: str | Path | IO[bytes]) -> None:
    """Write the replay buffer to a separate file; see `Agent.save_replay_buffer`."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    restore_replay(agent)
    document = {"kind": KIND, **agent_file.spaces_of(agent.context)}
    archive.write(agent_file.with_suffix(path), document, {SECTION: agent.parts.buffer.state_dict()})


def load_replay_buffer(agent: AssembledAgent, path: str | Path | IO[bytes]) -> None:
    """Read a replay buffer from a separate file into the agent's; see `Agent.load_replay_buffer`."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    if agent.run is not None and agent.in_round:
        raise UsageError(
            "load_replay_buffer would mix the buffer with the steps of the round that is being collected; call it before learn,"
            " or between rounds: in on_training_start or on_rollout_start (_on_training_start, _on_rollout_start)"
        )
    document, sections = archive.read(agent_file.existing(path), kind=KIND)
    agent_file.require_same_entries(document, agent.context)
    before = _copy_of(agent.parts.buffer.state_dict())
    try:
        with fitting("the file holds no replay buffer for this agent"):
            agent.parts.buffer.load_state_dict(sections[SECTION])
    except BaseException:
        # some checks need the rows in place: put back those of before
        agent.parts.buffer.load_state_dict(before)
        raise
    agent.pending_replay = None


def _copy_of(state: State) -> State:
    """A copy of the state of a buffer, to return to; small for an agent that has collected nothing.

    Raises:
        ResourceError: there is too little memory for it.
    """
    flat = flatten(state)
    size = sum(value.nbytes for value in flat.values() if isinstance(value, Tensor))
    require_memory(size, "a copy of the present replay buffer", "load the file into a new agent")
    return nested_state({name: value.clone() if isinstance(value, Tensor) else value for name, value in flat.items()})


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
    if plays_episodes(plan):
        # such a plan acts and preprocesses where the environments are, which may be in other processes
        return env
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
        resuming = ability(env, VectorEnvAbilities, "set_state")
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
        # the next `learn` resets the environments
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
    except (OpaqueValue, EnvironmentFault):
        # of an unknown kind, closed or broken: the rest of the agent can be saved
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
