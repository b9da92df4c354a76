"""What steps environments: collectors of experience, and players of whole episodes."""

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
    """Collects experience. It holds environments, here or elsewhere, and their acting states.

    Environments come in groups. Random numbers for acting are sampled per group, so the data depend on the number of
    groups and never on where a group is stepped.
    """

    @property
    def num_envs(self) -> int:
        """Environments of all groups, B."""
        ...

    @property
    def acting(self) -> tuple[ActingState[Any], ...]:
        """The acting state of each group; `collect` replaces them and changes none in place."""
        ...

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> Rollout[CarryT, ExtrasT]:
        """`length` steps [T] of every environment [B]; fewer where a callback ends the training in between.

        Args:
            policy: acts; a first `collect` of a round calls its `begin_rollout` before the first step.
            length: T.
            on_step: called after every vector step with the number of environment steps of this call so far.
            ends_round: False where the round continues with further calls; `end_round` ends it then.
        """
        ...

    def end_round(self) -> None:
        """End the round of collecting: callbacks get `on_rollout_end`. Without a round nothing happens."""
        ...


@runtime_checkable
class EpisodePlayer(Protocol):
    """A collector that plays whole episodes, wherever its environments are."""

    @property
    def observation_space(self) -> Space: ...

    def play(
        self, work: Callable[[Sequence[Any], Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT]
    ) -> list[ResultT]:
        """`work(environments, items)` for all items, in parts wherever environments are; results in the order of the items.

        `work` and items are picklable. There are fewer results where a callback ends the training in between.
        """
        ...
