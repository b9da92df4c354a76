"""The `Algorithm` Protocol, the part that learns, and its optional abilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from rlsdk.interfaces.state import Stateful
from rlsdk.records import Metrics, Rollout

BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


@runtime_checkable
class Algorithm(Stateful, Protocol[BatchT_contra]):
    """Updates parameters from batches. It accesses no environment and no file."""

    def update(self, batch: BatchT_contra, *, progress: float) -> Metrics:
        """Make one update and return its metrics. `progress` runs from 0 at the start of training to 1 at its end (for
        schedules)."""
        ...


@runtime_checkable
class UpdatesSeveral(Protocol[BatchT_contra]):
    """An algorithm that makes several updates faster together, for example because their targets do not change in between."""

    def update_several(self, batches: BatchT_contra, count: int, *, progress: float) -> Iterator[Metrics]:
        """Make the `count` updates that `update` would make one by one, and yield the metrics of each.

        `batches` holds `count` batches of equal size, concatenated. It is not called if the buffer is prioritised, or
        if the training loop has to call other code after each update.
        """
        ...


@runtime_checkable
class Collected(Protocol):
    """An algorithm or a buffer that uses the number of environment steps, for schedules for example."""

    def collected(self, env_steps: int, progress: float, /) -> object:
        """Receive the number of environment steps. Algorithms get this call after every vector step, buffers after
        every round.

        `env_steps`: the total so far; `progress`: 0 at the start of training, 1 at its end.
        """
        ...


@runtime_checkable
class HasTdError(Protocol):
    """An algorithm that exposes the temporal-difference errors of its last update, for prioritised buffers."""

    @property
    def td_error(self) -> Tensor | None:
        """float32 [N], not negative: one error per row of the last batch; None before the first update."""
        ...


@runtime_checkable
class CountsUpdates(Protocol):
    """An on-policy algorithm that counts its updates itself, because one call of `update` makes several."""

    @property
    def updates(self) -> int: ...


@runtime_checkable
class AllowsLag(Protocol):
    """An on-policy algorithm that can learn from rollouts of a policy that is some updates old.

    Importance weights correct for the difference between the two policies. Only for such algorithms may the
    environment's collectors run ahead of the learner (`max_lag` of `make_vec_env`).
    """

    @property
    def allows_lag(self) -> bool: ...


@runtime_checkable
class SeesDiscarded(Protocol):
    """An on-policy algorithm that also receives rollouts that a callback cut short. It must not learn from them."""

    def discarded(self, rollout: Rollout[Any, Any], /) -> object: ...


@runtime_checkable
class Proposes(Protocol):
    """An algorithm of a population method: it proposes candidate parameters and learns from their scores."""

    def propose(self, *, progress: float) -> Tensor:
        """Return the candidates, float32 [P, D], whose episodes are played next; `progress` as for `Algorithm.update`."""
        ...


@runtime_checkable
class FollowsPolicy(Protocol):
    """An algorithm that holds copies of the policy's parameters, such as a target network."""

    def policy_replaced(self) -> object:
        """Update the copies: `pretrain` or `load_policy` has replaced the parameters of the policy outside of a training."""
        ...


@runtime_checkable
class Reconfigurable(Protocol):
    """A part that accepts new settings after the agent is built."""

    def reconfigure(self, config: Any, /) -> object:
        """Apply `config`, which holds all settings, changed or not."""
        ...
