"""Protocols of the agent of a training: the members that the driver uses, and those that callbacks and evaluations use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

from torch import Tensor

from rlsdk.environments import ConnectedEnv, NumpyVectorEnv
from rlsdk.environments.adapters.actions import ActionDecoder
from rlsdk.environments.adapters.masks import MaskValidator
from rlsdk.interfaces import BuildContext, Parts, State, VectorEnv
from rlsdk.preprocessing import Preprocessing
from rlsdk.records import Act, ActingState, Cursor, Observation
from rlsdk.registry import AlgorithmSpec
from rlsdk.runtime.seeding import Streams
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.sinks import Logger
from rlsdk.spaces import Actions
from rlsdk.storage.journal import Journal
from rlsdk.training.acting_weights import ActingWeights


class DrivenAgent(Protocol):
    """The members of an agent that the driver reads, and those in which it stores the progress of the training."""

    cursor: Cursor | None
    acting: tuple[ActingState[object], ...]
    """The acting state after the last round, one per group of environments; empty before training began."""
    in_round: bool
    """Whether the environments have made steps that `cursor` does not count."""
    ahead: tuple[ActingWeights, ...]
    """The weights that act in the next rounds, if collectors are ahead of the learner."""

    @property
    def parts(self) -> Parts: ...
    @property
    def preprocessing(self) -> Preprocessing: ...
    @property
    def context(self) -> BuildContext: ...
    @property
    def streams(self) -> Streams: ...
    @property
    def env(self) -> ConnectedEnv | None: ...
    @property
    def config(self) -> AgentConfig: ...
    @property
    def logger(self) -> Logger: ...


MakesCopy = Callable[[VectorEnv], DrivenAgent]
"""A function that creates, in a collector, the agent that acts in the collector's environments."""


class ActingSession(Protocol):
    """The members of `rlsdk.agent.Session` that are used to play episodes."""

    deterministic: bool
    decode: ActionDecoder

    def action_on(self, observation: Observation) -> Tensor:
        """Return actions [n] or [n, A] for a record of `n` observations, on the CPU, nested like the action space."""
        ...

    def act_on(self, observation: Observation) -> Act[object, object]:
        """Return the complete result of the policy."""
        ...


class TrainedAgent(Protocol):
    """The members of `rlsdk.Agent` that callbacks use, as `run.agent` or as `model` of a `BaseCallback`.

    Settings are available as attributes by their names.
    """

    spec: ClassVar[AlgorithmSpec]

    @property
    def seed(self) -> int: ...

    @property
    def config(self) -> AgentConfig: ...
    @property
    def device(self) -> str: ...
    @property
    def context(self) -> BuildContext: ...
    @property
    def parts(self) -> Parts: ...
    @property
    def streams(self) -> Streams: ...
    @property
    def masks(self) -> MaskValidator: ...
    @property
    def decode_action(self) -> ActionDecoder: ...
    @property
    def env(self) -> ConnectedEnv | None: ...
    @property
    def run(self) -> object: ...
    @property
    def logger(self) -> Logger: ...
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

    def get_env(self) -> NumpyVectorEnv | None: ...

    def require_same_spaces(self, envs: object, what: str) -> None: ...

    def end_episodes(self) -> None: ...

    def restart_episodes(self) -> Cursor: ...

    def get_parameters(self) -> dict[str, State]: ...

    def set_parameters(self, load_path_or_dict: Mapping[str, object]) -> None: ...

    def save(
        self, path: str | Path | IO[bytes], exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> Path | None: ...

    def save_checkpoint(self, path: Path, *, replay: bool, journal: Journal | None = None) -> bool: ...
