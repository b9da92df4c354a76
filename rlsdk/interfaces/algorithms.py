"""What learns: algorithms and their optional abilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from rlsdk.interfaces.state import Stateful
from rlsdk.records import Metrics, Rollout

BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


@runtime_checkable
class Algorithm(Stateful, Protocol[BatchT_contra]):
    """Turns a batch into better parameters. It never sees an environment, a policy's carry or a file."""

    def update(self, batch: BatchT_contra, *, progress: float) -> Metrics:
        """One update; `progress` runs from 0 at the start of training to 1 at its end (for schedules)."""
        ...


@runtime_checkable
class UpdatesSeveral(Protocol[BatchT_contra]):
    """An algorithm whose updates share work, such as targets that do not change between them."""

    def update_several(self, batches: BatchT_contra, count: int, *, progress: float) -> Iterator[Metrics]:
        """The updates that `update` would make with each of `count` batches of equal size, whose rows stand in `batches` one
        batch after the other. Yields the metrics of each. Without a prioritised memory and without callbacks in between."""
        ...


@runtime_checkable
class Collected(Protocol):
    """An algorithm or memory that counts in environment steps. Algorithms are called after every vector step, memories after
    every round of collecting."""

    def collected(self, env_steps: int, progress: float, /) -> object:
        """`env_steps`: total so far; `progress`: 0 at the start of training ... 1 at its end."""
        ...


@runtime_checkable
class HasTdError(Protocol):
    """An algorithm that holds the errors of its last update, for prioritised memories."""

    @property
    def td_error(self) -> Tensor | None:
        """float32 [N], not negative: one per row of the last batch; None before the first update."""
        ...


@runtime_checkable
class CountsUpdates(Protocol):
    """An on-policy algorithm that counts its updates itself, as one `update` makes several."""

    @property
    def updates(self) -> int: ...


@runtime_checkable
class AllowsLag(Protocol):
    """An on-policy algorithm that may learn from rollouts of a policy some updates old, as importance weights correct for the
    difference. Collectors may be ahead of it (`max_lag` of `make_vec_env`)."""

    @property
    def allows_lag(self) -> bool: ...


@runtime_checkable
class SeesDiscarded(Protocol):
    """An on-policy algorithm that also gets the rollouts that a callback cut short; it does not learn from them."""

    def discarded(self, rollout: Rollout[Any, Any], /) -> object: ...


@runtime_checkable
class Proposes(Protocol):
    """An algorithm that searches in a population."""

    def propose(self, *, progress: float) -> Tensor:
        """Candidates, float32 [P, D], to be played; `progress` as for `Algorithm.update`."""
        ...


@runtime_checkable
class FollowsPolicy(Protocol):
    """An algorithm that holds copies of the policy's parameters, such as a target network."""

    def policy_replaced(self) -> object:
        """Called after the policy got other parameters from outside of a training: `pretrain`, `load_policy`."""
        ...


@runtime_checkable
class Reconfigurable(Protocol):
    """A part that takes over settings that change after the agent is made."""

    def reconfigure(self, config: Any, /) -> object:
        """`config`: all settings, changed ones included."""
        ...
