"""The state of an agent as one record: all that files store and that resuming a training needs."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.file_checks import require_finite, require_same_shapes
from rlsdk.agent.further_states import PLAN, further_states, has_memories, restore_further, stored_memories
from rlsdk.agent.networks import require_same_layers
from rlsdk.agent.resumption import stored_cursor
from rlsdk.agent.stored_cursor import StoredCursor
from rlsdk.agent.stored_replay import restore_replay
from rlsdk.errors import SettingsError, UsageError, fitting, suggest
from rlsdk.interfaces import BuildContext, State
from rlsdk.registry import AlgorithmSpec
from rlsdk.runtime.stored import MAX_COUNT, count_in
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.training.acting_weights import ActingWeights
from rlsdk.training.episode_statistics import EpisodeStatistics

SECTIONS = ("policy", "training", "replay")
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Learning:
    """The state that resuming a training needs in addition to the policy: the section `training` of a file."""

    algorithm: State
    streams: State
    step_offset: int
    cursor: StoredCursor | None
    """The counts, the carry, and the running episodes if they can be stored; None before training began."""
    log: State | None
    """The statistics of the last episodes."""
    further: State
    """The states that `further_states` returns: of `Parts.states`, and of the plan."""
    ahead: tuple[ActingWeights, ...] = ()
    """The weights that will act in the next rounds, if collectors act with earlier weights than the learner's."""
    frozen: State = field(default_factory=dict)
    """The statistics of the normaliser that do not change; empty if all change."""

    def state_dict(self) -> dict[str, object]:
        """The state as a mapping, in the form that files store."""
        counts = {"step_offset": self.step_offset}
        state: dict[str, object] = {
            "algorithm": self.algorithm,
            "streams": self.streams,
            "counts": counts,
            **self.further,
        }
        if self.cursor is not None:
            counts |= {"env_steps": self.cursor.counts.env_steps, "updates": self.cursor.counts.updates}
            state |= self.cursor.state_dict()
        if self.ahead:
            state["ahead"] = {f"{number:03d}": weights.state_dict() for number, weights in enumerate(self.ahead)}
        if self.frozen:
            state["frozen"] = self.frozen
        return state if self.log is None else {**state, "log": self.log}

    @staticmethod
    def from_state(state: State) -> Learning:
        """The record of a state that `state_dict` returned. Raises KeyError, TypeError or ValueError if it is malformed."""
        counts, log = state["counts"], state.get("log")
        cursor = StoredCursor.from_state(counts, state) if "env_steps" in counts else None
        if log is not None:
            EpisodeStatistics(1).load_state_dict(log)
        further = {name: state[name] for name in ("states", PLAN) if name in state}
        ahead = tuple(ActingWeights.from_state(entry) for _, entry in sorted(state.get("ahead", {}).items()))
        offset = count_in(counts, "step_offset", -MAX_COUNT)  # negative after `num_timesteps` was set to more
        frozen = state.get("frozen", {})
        return Learning(state["algorithm"], state["streams"], offset, cursor, log, further, ahead, frozen)


@dataclass(frozen=True, slots=True)
class TrainingState:
    """The state of an agent at one moment. Training changes the tensors: write or copy them before it continues."""

    spec: AlgorithmSpec
    config: AgentConfig
    context: BuildContext
    env_name: str | None
    seed: int
    num_timesteps: int
    masks: bool
    """Whether actions depend on action masks."""
    policy: State
    learning: Learning | None
    """The state for resuming training; None if it was excluded."""
    replay: State | None
    """The state of the replay buffer; None if it was not included."""
    memories: State | None
    """The states of additional buffers; None if they were not included or there are none."""

    @property
    def has_episodes(self) -> bool:
        """Whether the state contains the running episodes."""
        at = None if self.learning is None else self.learning.cursor
        return at is not None and at.episodes is not None


def training_state(agent: AssembledAgent, *, exclude: Set[str] = NOTHING, include: Set[str] = NOTHING) -> TrainingState:
    """The state of an agent: `policy` always, `training` unless excluded, `replay` only if included.

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
    replay, memories, buffer = None, None, agent.parts.buffer
    if "replay" in include:
        if not has_memories(agent.parts):
            raise UsageError(f"{agent.spec.id} has no replay buffer to include")
        restore_replay(agent)
        replay, memories = None if buffer is None else buffer.state_dict(), stored_memories(agent.parts)
    return TrainingState(
        spec=agent.spec,
        config=agent.config,
        context=agent.context,
        env_name=agent.env_name,
        seed=agent.seed,
        num_timesteps=agent.total_steps - agent.step_offset,
        masks=agent.trains_with_masks,
        policy=agent.preprocessing.policy_state(agent.parts.policy),
        learning=None if "training" in exclude else _learning(agent),
        replay=replay,
        memories=memories,
    )


def _learning(agent: AssembledAgent) -> Learning:
    log = agent.stored_log if agent.run is None else agent.run.episode_statistics.state_dict()
    return Learning(
        agent.parts.algorithm.state_dict(),
        agent.streams.state_dict(),
        agent.step_offset,
        stored_cursor(agent),
        log,
        further_states(agent.parts),
        agent.ahead,
        frozen_of(agent),
    )


def frozen_of(agent: AssembledAgent) -> State:
    """The entry `frozen` of the section `training`: the frozen statistics of the normaliser; empty if all change."""
    normalizer = agent.preprocessing.normalizer
    return normalizer.frozen if normalizer is not None and any(normalizer.frozen.values()) else {}


def restore(agent: AssembledAgent, policy: State, learning: State | None, changed: Iterable[str] = ()) -> None:
    """Restore the sections `policy` and `training` of a file in an agent that was just assembled.

    Raises:
        ArtifactError: they do not fit the agent; the message names the settings that were `changed`.
    """
    names = ", ".join(sorted(set(changed) - {"device"}))
    given = (
        f"the file does not fit the {names} that load was given; give what the agent was made with, or make a new one"
    )
    with fitting(given if names else "the file does not fit its own settings"):
        parts = agent.parts
        require_finite(agent.preprocessing.policy_state(parts.policy), policy, "policy")
        agent.preprocessing.load_policy_state(parts.policy, policy)
        if not learning:
            return
        require_finite(parts.algorithm.state_dict(), learning["algorithm"], "algorithm")
        parts.algorithm.load_state_dict(learning["algorithm"])
        restore_further(parts, learning)
        agent.streams.load_state_dict(learning["streams"])
        found = Learning.from_state(learning)
        for weights in found.ahead:
            require_finite(parts.behavior_policy.state_dict(), weights.policy, "ahead")
            require_same_shapes(parts.behavior_policy.state_dict(), weights.policy, "ahead")
        agent.ahead = found.ahead
        if found.frozen and agent.preprocessing.normalizer is not None:
            agent.preprocessing.normalizer.freeze(found.frozen)
        agent.step_offset, agent.stored_cursor, agent.stored_log = found.step_offset, found.cursor, found.log
