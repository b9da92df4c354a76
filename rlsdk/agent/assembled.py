"""The internal state of an agent: its settings, parts, environment and random streams, and the cursor of its training.

`Agent` is the user-facing class around one `AssembledAgent`. Most functions of this folder take the `AssembledAgent`.
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
    """The internal state of an agent; `rlsdk.agent.assembly.assemble` makes one."""

    spec: AlgorithmSpec
    class_name: str
    """The name of the user-facing class, for messages."""
    config: ConfigT
    env: ConnectedEnv | None
    """The vector environment of training; None for an agent without an environment."""
    env_name: str | None
    """The id that the environment was made from; None if it was not made from an id."""
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
    """The layers that were built from the settings; see `require_same_layers`."""
    logger: Logger = field(default_factory=Logger)
    logger_was_set: bool = False
    cursor: Cursor | None = None
    acting: tuple[ActingState[object], ...] = ()
    """The acting state after the last round, one per group of environments; empty before training began."""
    in_round: bool = False
    """Whether a round is running, or has failed, so that the environments have made more steps than `cursor` counts."""
    ahead: tuple[ActingWeights, ...] = ()
    """The weights that will act in the next rounds, if collectors act with earlier weights than the learner's."""
    run: Run | None = None
    """The running training; None if there is none."""
    stored_cursor: StoredCursor | None = None
    """The cursor of a training that is not running and that comes from a file, or whose episodes were ended."""
    stored_log: State | None = None
    pending_replay: Callable[[], State] | None = None
    """A function that reads the replay buffer of the agent's file; None once the buffer has been restored."""
    as_stored: bool = True
    """Whether the settings and the number of environments are those of the file that the agent was loaded from."""
    step_offset: int = 0
    """The number of steps at which `num_timesteps` began to count from 0."""
    fingerprint: object = None
    """The fingerprint of the environments when the last training ended, to detect steps outside training."""
    numpy_env: NumpyVectorEnv | None = None
    policy_transfer: PolicyTransfer | None = None
    """The tensors that `load_policy` copied."""
    met_masks: bool = False
    """Whether an earlier environment, or that of the agent's file, had action masks."""
    notices: set[str] = field(default_factory=set)
    """The notices of `learn` that were given, so that each is given once."""
    calls_without_state: int = 0
    """The number of calls of `predict` with a recurrent policy but without `state` and `episode_start`."""
    start_time: int = 0
    """The time of the last call of `learn`, in nanoseconds since 1970; 0 before the first."""

    @property
    def trains_with_masks(self) -> bool:
        """Whether the agent's actions depend on action masks: it needs masks, or used those of an environment."""
        given = self.met_masks or (self.env is not None and self.env.has_masks)
        return self.masks.required or (self.masks.used and given)

    @property
    def total_steps(self) -> int:
        """The progress since the agent was made, in the unit of its plan: environment steps or updates."""
        return self.counts.count(self.parts.plan.unit)

    @property
    def counts(self) -> Cursor:
        """The cursor of the training, whether it is running or stored; zeros before training began."""
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
        """The number of steps for users: those since `step_offset`, including the steps of the current round."""
        steps = self.total_steps - self.step_offset
        return steps if self.run is None else steps + self.run.steps_in_round

    def described(self) -> str:
        """A description on one line: class, policy, environment, number of steps, seed and device."""
        count, config = self.context.num_envs, self.config
        place = self.env_name or ("its own environment" if self.env is not None else "no environment")
        envs = "1 environment" if count == 1 else f"{count} environments"
        return (
            f"<{self.class_name} {config.policy} on {place}, {envs}, {self.num_timesteps:,} steps,"
            f" seed {self.seed}, {self.context.device}>"
        )
