"""The Protocols of collectors, which step environments, and of players of whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from rlsdk.interfaces.policies import Policy
from rlsdk.records import ActingState, Rollout
from rlsdk.spaces import Space

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Collector(Protocol):
    """Collects experience. It holds the environments, or a connection to them, and the acting states.

    The environments are divided into groups. Each group has separate random numbers for acting. The data therefore
    depend on the number of groups, but not on the process that steps a group.
    """

    @property
    def num_envs(self) -> int:
        """The number of environments of all groups together, B."""
        ...

    @property
    def acting(self) -> tuple[ActingState[Any], ...]:
        """The acting state of each group: the next observation and the policy's carry.

        `collect` replaces these records and modifies none in place.
        """
        ...

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> Rollout[CarryT, ExtrasT]:
        """Make `length` vector steps [T], each of which steps every environment [B] once, and return them as a rollout.

        There are fewer steps if a callback ends the training.

        Args:
            policy: chooses the actions. The first `collect` of a round calls its `begin_rollout` before the first step.
            length: the number of vector steps, T.
            on_step: called after every vector step with the number of environment steps that this call has made so far.
            ends_round: False if the round continues with further calls; the plan then ends it with `end_round`.
        """
        ...

    def end_round(self) -> None:
        """End the round of collecting and call `on_rollout_end` of the callbacks. Outside of a round it does nothing."""
        ...


@runtime_checkable
class EpisodePlayer(Protocol):
    """A collector that plays whole episodes, in this or in other processes."""

    @property
    def observation_space(self) -> Space: ...

    def play(
        self, work: Callable[[Sequence[Any], Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT]
    ) -> list[ResultT]:
        """Call `work(environments, items)` where the environments are, and return the results in the order of the
        items.

        The items may be divided over several calls. `work` and items must be picklable. There are fewer results if a
        callback ends the training in between.
        """
        ...
