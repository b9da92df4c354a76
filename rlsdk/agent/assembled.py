"""The insides of an agent: its settings, parts, environment and random streams, and the cursor of its training.

`Agent` is what users see of one of these. The functions of this folder work on it and know nothing of `Agent`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from rlsdk.agent.stored_cursor import StoredCursor
from rlsdk.agent.transferred import PolicyTransfer
from rlsdk.environments import ConnectedEnv, NumpyVectorEnv
from rlsdk.environments.adapters.actions import ActionDecoder
from rlsdk.environments.adapters.masks import MaskValidator
from rlsdk.environments.adapters.observations import ObservationBatcher
from rlsdk.interfaces import BuildContext, Parts, State
from rlsdk.preprocessing import Preprocessing
from rlsdk.records import ActingState, Cursor
from rlsdk.runtime.seeding import Streams
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.sinks import Logger
from rlsdk.training.acting_weights import ActingWeights
from rlsdk.training.run import Run

if TYPE_CHECKING:
    from rlsdk.registry import AlgorithmSpec

ConfigT = TypeVar("ConfigT", bound=AgentConfig, default=Any)


@dataclass(eq=False)
class AssembledAgent(Generic[ConfigT]):
    """An agent as its own functions see it; made by `rlsdk.agent.assembly.assemble`."""

    spec: AlgorithmSpec
    class_name: str
    """Of the user-facing class, for messages."""
    config: ConfigT
    env: ConnectedEnv | None
    """The vector environment of training; None for an agent that only predicts."""
    env_name: str | None
    """The id the environment was made from; None where it was no id."""
    seed: int
    device_reason: str
    streams: Streams
    masks: MaskValidator
    context: BuildContext = field(init=False)
    decode_action: ActionDecoder = field(init=False)
    stack: ObservationBatcher = field(init=False)
    preprocessing: Preprocessing = field(init=False)
    parts: Parts = field(init=False)
    made_as: list[str] = field(init=False)
    """The layers that the settings made; see `require_same_layers`."""
    logger: Logger = field(default_factory=Logger)
    logger_was_set: bool = False
    cursor: Cursor | None = None
    acting: tuple[ActingState[object], ...] = ()
    """Where acting stood after the last round, one per group of environments; empty before training began."""
    in_round: bool = False
    """Whether the environments have gone further than `cursor`."""
    ahead: tuple[ActingWeights, ...] = ()
    """The weights that act in the next rounds, where collectors are ahead of the learner."""
    run: Run | None = None
    """The current training."""
    stored_cursor: StoredCursor | None = None
    """The state of a training that is not running: from a file, or with episodes that have ended."""
    stored_log: State | None = None
    pending_replay: Callable[[], State] | None = None
    """Reads the replay buffer of the file the agent was loaded from, until that has been done."""
    as_stored: bool = True
    """Whether settings and the number of environments are those of that file."""
    step_offset: int = 0
    """Environment steps before those that `num_timesteps` counts."""
    fingerprint: object = None
    """Of the environments when the last training ended."""
    numpy_env: NumpyVectorEnv | None = None
    policy_transfer: PolicyTransfer | None = None
    """What `load_policy` took over."""
    met_masks: bool = False
    """Whether an earlier environment, or the one of its file, gave action masks."""
    calls_without_state: int = 0
    """Of `predict`, where the policy has a memory and neither `state` nor `episode_start` was given."""
    start_time: int = 0
    """When `learn` was last called, nanoseconds since 1970; 0 before."""

    @property
    def trains_with_masks(self) -> bool:
        """Whether its actions depend on masks: it needs them, or those of an environment were used."""
        given = self.met_masks or (self.env is not None and self.env.has_masks)
        return self.masks.required or (self.masks.used and given)

    @property
    def total_steps(self) -> int:
        """What the agent was trained since it was made, in the plan's unit: environment steps or updates."""
        return self.counts.count(self.parts.plan.unit)

    @property
    def counts(self) -> Cursor:
        """How far training is."""
        if self.cursor is not None:
            return self.cursor
        return Cursor() if self.stored_cursor is None else self.stored_cursor.counts

    @counts.setter
    def counts(self, counts: Cursor) -> None:
        if self.cursor is not None:
            self.cursor = counts
        elif self.stored_cursor is not None:
            self.stored_cursor = replace(self.stored_cursor, counts=counts)
        else:
            self.stored_cursor = StoredCursor(counts, {})
        if self.run is not None:
            self.run.cursor = counts

    @property
    def num_timesteps(self) -> int:
        """Environment steps as users count them, those of the current round included."""
        steps = self.total_steps - self.step_offset
        return steps if self.run is None else steps + self.run.steps_in_round

    def described(self) -> str:
        """One line: what the agent is, where it trains and how far it is."""
        count, config = self.context.num_envs, self.config
        place = self.env_name or ("its own environment" if self.env is not None else "no environment")
        envs = "1 environment" if count == 1 else f"{count} environments"
        return (
            f"<{self.class_name} {config.policy} on {place}, {envs}, {self.num_timesteps:,} steps,"
            f" seed {self.seed}, {self.context.device}>"
        )
