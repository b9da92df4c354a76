"""The collector of a training without environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from rlsdk.errors import UsageError
from rlsdk.interfaces import Policy
from rlsdk.records import ActingState

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


class NoCollector:
    """The collector of a training that collects no experience."""

    acting: tuple[ActingState[object], ...] = ()

    def __init__(self, num_envs: int = 0) -> None:
        """`num_envs`: the environments that the agent has, for updates that count as if steps were collected."""
        self.num_envs = num_envs

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> NoReturn:
        """Refuse to collect.

        Raises:
            UsageError: always.
        """
        raise UsageError("the plan has needs_environment = False but collects; set it to True")

    def end_round(self) -> None:
        """Do nothing, because there are no rounds of collecting."""
