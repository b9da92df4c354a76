"""Training loops and their optional abilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from rlsdk.records import Cursor, Metrics, Report, Unit

TrainingT_contra = TypeVar("TrainingT_contra", contravariant=True)
PartsT_contra = TypeVar("PartsT_contra", contravariant=True)


@runtime_checkable
class Plan(Protocol[TrainingT_contra]):
    """The training loop of an algorithm. `TrainingT` is `rlsdk.training.Training` everywhere.

    `OnPolicyPlan`, `OffPolicyPlan`, `PopulationPlan` and `OfflinePlan` of `rlsdk.training` are plans; a plugin's own is any
    object with these members.
    """

    @property
    def needs_environment(self) -> bool:
        """Whether `rounds` collects. If False, an agent trains without an environment."""
        ...

    @property
    def unit(self) -> Unit:
        """What `learn(total_timesteps)` and progress count: environment steps, or updates."""
        ...

    @property
    def log_every(self) -> Literal["episodes", "rounds"]:
        """What `learn(log_interval)` counts: finished episodes (default interval 4), or rounds (default 1)."""
        ...

    def rounds(self, training: TrainingT_contra, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train from `cursor` until `training.end` of the unit; yields after every round.

        The loop may be left after any round, and begun again from the cursor it yielded last. Counts never fall.
        """
        ...


@runtime_checkable
class ChecksParts(Protocol[PartsT_contra]):
    """A plan that needs more of the other parts than each must have."""

    def check_parts(self, parts: PartsT_contra, /) -> object:
        """Called when `Parts` are assembled.

        Raises:
            PluginError: a part lacks what the plan calls.
        """
        ...


@runtime_checkable
class HasRolloutLength(Protocol):
    """A plan whose rounds each collect one rollout of `n_steps` vector steps and update with it."""

    @property
    def n_steps(self) -> int: ...


@runtime_checkable
class NormalizesEpisodes(Protocol):
    """A plan that plays whole episodes with `EpisodePlayer`, and normalises their observations by itself."""

    def with_normalizer(self, normalizer: Any) -> Any:
        """The plan with statistics of observations, an `rlsdk.preprocessing.Normalizer`."""
        ...


@runtime_checkable
class FollowsSettings(Protocol):
    """A plan that settings of a finished agent change."""

    def with_settings(self, config: Any, context: Any) -> Any:
        """The plan with the settings of `config`; `context` is the `BuildContext`. Settings that it lacks stay as they are.

        Raises:
            SettingsError: the settings do not fit each other.
        """
        ...


@runtime_checkable
class LearnsOffline(Protocol[TrainingT_contra]):
    """A plan that can update from the memory alone (`Agent.train`)."""

    def learn_offline(self, training: TrainingT_contra, count: int, batch_size: int | None) -> Metrics:
        """`count` updates without collecting; their mean metrics. `batch_size` None: the plan's own."""
        ...
