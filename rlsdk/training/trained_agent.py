"""The members of an agent that training and callbacks use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Generic, Protocol

from torch import Tensor
from typing_extensions import TypeVar

from rlsdk.environments import ConnectedEnv
from rlsdk.environments.adapters.masks import MaskValidator
from rlsdk.environments.adapters.observations import ActionDecoder
from rlsdk.interfaces import BuildContext, Parts, State
from rlsdk.preprocessing import Preprocessing
from rlsdk.records import Act, ActingState, Cursor, Observation
from rlsdk.registry import AlgorithmSpec
from rlsdk.runtime.process import Streams
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.sinks import Logger
from rlsdk.spaces import Actions
from rlsdk.storage.journal import Journal

ConfigT = TypeVar("ConfigT", bound=AgentConfig, default=Any)


@dataclass(eq=False, kw_only=True)
class DrivenAgent(Generic[ConfigT]):
    """The members of an agent that the driver reads, and those in which it stores the progress of the training."""

    config: ConfigT
    env: ConnectedEnv | None
    """The vector environment of training; None for an agent without an environment."""
    streams: Streams
    context: BuildContext = field(init=False)
    preprocessing: Preprocessing = field(init=False)
    parts: Parts = field(init=False)
    logger: Logger = field(default_factory=Logger)
    cursor: Cursor | None = None
    acting: tuple[ActingState[object], ...] = ()
    """The acting state after the last round, one per group of environments; empty before training began."""
    in_round: bool = False
    """Whether a round is running, or has failed, so that the environments have made more steps than `cursor` counts."""
    ahead: tuple[State, ...] = ()
    """The weights that will act in the next rounds, if a collector acts with earlier weights than the learner's.

    Each has `policy`, the state of the policy, `env_steps`, the count when the learner had it, and perhaps more."""


class ActingSession(Protocol):
    """The members of `rlsdk.agent.prediction.Session` that are used to play episodes."""

    deterministic: bool
    decode: ActionDecoder

    def action_on(self, observation: Observation) -> Tensor:
        """Return actions [n] or [n, A] for a record of `n` observations, on the CPU, nested like the action space."""

    def act_on(self, observation: Observation) -> Act[object, object]:
        """Return the complete result of the policy."""


class TrainedAgent(Protocol):
    """The members of `rlsdk.Agent` that callbacks use, as `run.agent`.

    Settings are available as attributes by their names.
    """

    spec: ClassVar[AlgorithmSpec]
    seed: int
    context: BuildContext
    parts: Parts
    streams: Streams
    masks: MaskValidator
    decode_action: ActionDecoder
    logger: Logger

    @property
    def config(self) -> AgentConfig: ...
    @property
    def device(self) -> str: ...
    @property
    def env(self) -> ConnectedEnv | None: ...
    @property
    def run(self) -> object: ...
    @property
    def num_timesteps(self) -> int: ...
    @property
    def replay_buffer(self) -> object: ...

    def __getattr__(self, name: str) -> Any: ...

    def predict(
        self,
        observation: object,
        state: object = None,
        episode_start: object = None,
        deterministic: bool = False,
        action_masks: object = None,
    ) -> tuple[Actions, object]: ...

    def session(self, n: int = 1, *, deterministic: bool = True, seed: int | None = None) -> ActingSession: ...

    def derived_seed(self, name: str) -> int: ...

    def get_env(self) -> object: ...

    def require_same_spaces(self, envs: object, what: str) -> None: ...

    def end_episodes(self) -> None: ...

    def restart_episodes(self) -> Cursor: ...

    def get_parameters(self) -> dict[str, State]: ...

    def set_parameters(self, load_path_or_dict: Mapping[str, object]) -> None: ...

    def save(
        self, path: str | Path | IO[bytes], exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> Path | None: ...

    def save_checkpoint(self, path: Path, *, replay: bool, journal: Journal | None = None) -> bool: ...
