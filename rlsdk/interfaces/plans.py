"""The `Plan` Protocol, a training loop, and its optional abilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from rlsdk.records import Cursor, Metrics, Report, Unit

TrainingT_contra = TypeVar("TrainingT_contra", contravariant=True)
PartsT_contra = TypeVar("PartsT_contra", contravariant=True)


@runtime_checkable
class Plan(Protocol[TrainingT_contra]):
    """The training loop of an algorithm. `TrainingT` is always `rlsdk.training.Training`.

    `rlsdk.training` has the plans `OnPolicyPlan`, `OffPolicyPlan`, `PopulationPlan` and `OfflinePlan`. A plugin may
    define another one: any object with these members.
    """

    @property
    def needs_environment(self) -> bool:
        """Whether `rounds` collects experience. If False, an agent trains without an environment."""
        ...

    @property
    def unit(self) -> Unit:
        """The unit of `learn(total_timesteps)` and of progress: environment steps or updates."""
        ...

    @property
    def log_every(self) -> Literal["episodes", "rounds"]:
        """The unit of `learn(log_interval)`: finished episodes (default interval 4) or rounds (default interval 1)."""
        ...

    def rounds(self, training: TrainingT_contra, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train from `cursor` until `training.end`, and yield the new cursor and a report after every round.

        A round is one pass of the loop: collect data, then update. The driver may leave the loop after any round and
        call `rounds` again with the last cursor. Counts never decrease.
        """
        ...


@runtime_checkable
class ChecksParts(Protocol[PartsT_contra]):
    """A plan with further requirements of the other parts, beyond their required members."""

    def check_parts(self, parts: PartsT_contra, /) -> object:
        """Check the parts; called when an agent is assembled.

        Raises:
            PluginError: a part lacks a member that the plan calls.
        """
        ...


@runtime_checkable
class HasRolloutLength(Protocol):
    """A plan whose rounds each collect one rollout of `n_steps` vector steps and update the algorithm with it."""

    @property
    def n_steps(self) -> int: ...


@runtime_checkable
class NormalizesEpisodes(Protocol):
    """A plan that plays whole episodes with `EpisodePlayer` and normalises their observations itself."""

    def with_normalizer(self, normalizer: Any) -> Any:
        """Return the plan with `normalizer`, the running statistics of observations (an `ObservationNormalizer`); None:
        without."""
        ...


@runtime_checkable
class FollowsSettings(Protocol):
    """A plan whose settings can be changed after the agent is built."""

    def with_settings(self, config: Any, context: Any) -> Any:
        """Return the plan with the settings of `config`; `context` is the `BuildContext`. Settings missing in `config`
        do not change.

        Raises:
            SettingsError: the settings do not fit each other.
        """
        ...


@runtime_checkable
class LearnsOffline(Protocol[TrainingT_contra]):
    """A plan that can update from the buffer alone, without collecting (`Agent.train`)."""

    def learn_offline(self, training: TrainingT_contra, count: int, batch_size: int | None) -> Metrics:
        """Make `count` updates without collecting and return their mean metrics. `batch_size` None means the plan's
        batch size."""
        ...
