"""The training loop: rounds of updates from the data, validation after each round, and early stopping."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from rlsdk.interfaces import BuildContext, Parts, State, Training
from rlsdk.records import Cursor, Metrics, Report
from rlsdk_bc.cloning import Cloning
from rlsdk_bc.config import BCConfig
from rlsdk_datasets import OfflinePlan


@dataclass(slots=True)
class Lowest:
    """The lowest loss of held-out episodes so far, and the number of updates since."""

    loss: float = float("inf")
    waited: int = 0
    weights: Tensor = field(default_factory=lambda: torch.zeros(0))
    """The policy's parameters [D] at the lowest loss; empty before the first validation and without `patience`."""


class CloningPlan:
    """`OfflinePlan` with validation after each round, if episodes are held out.

    With `patience`, training ends after that number of updates without a lower loss. The weights of the lowest loss are then
    restored. A round has at most `patience` updates.
    """

    needs_environment: ClassVar[bool] = False
    unit: ClassVar[Literal["updates"]] = "updates"
    log_every: ClassVar[Literal["rounds"]] = "rounds"

    def __init__(self, inner: OfflinePlan, patience: int | None) -> None:
        rounds = inner.updates_per_round if patience is None else min(patience, inner.updates_per_round)
        self.inner, self.patience, self.lowest = replace(inner, updates_per_round=rounds), patience, Lowest()

    def with_settings(self, config: BCConfig, context: BuildContext) -> CloningPlan:
        """See `rlsdk.interfaces.PlanAbilities`."""
        plan = CloningPlan(self.inner.with_settings(config, context), config.patience)
        plan.lowest = self.lowest
        return plan

    def check_parts(self, parts: Parts) -> None:
        """See `rlsdk.interfaces.PlanAbilities`. Raises SettingsError: there is no data set."""
        self.inner.check_parts(parts)

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` updates, or until the loss of held-out episodes no longer falls."""
        # not checked: a profiler may stand in for it
        algorithm = cast("Cloning[Any]", training.parts.algorithm)
        before = cursor.updates
        for after, report in self.inner.rounds(training, cursor):
            loss = algorithm.held_out_loss()
            if loss is None:
                yield after, report
                continue
            ends = self.patience is not None and self._waited_enough(float(loss), after.updates - before, algorithm)
            metrics = {**(report.metrics or {}), "train/held_out_loss": loss}
            before = after.updates
            yield after, replace(report, metrics=metrics)
            if ends:
                return

    def _waited_enough(self, loss: float, updates: int, algorithm: Cloning[Any]) -> bool:
        """Count `updates` without a lower loss. If training ends, restore the weights of the lowest loss and return True.
        A further `learn` counts from 0."""
        weights, lowest = algorithm.optimizer.flat.detach(), self.lowest
        if loss < lowest.loss:
            lowest.loss, lowest.waited, lowest.weights = loss, 0, weights.clone()
            return False
        lowest.waited += updates
        if self.patience is None or lowest.waited < self.patience:
            return False
        weights.copy_(lowest.weights)
        lowest.waited = 0
        return True

    def learn_offline(self, training: Training, count: int, batch_size: int | None) -> Metrics:
        """See `rlsdk.interfaces.PlanAbilities`."""
        return self.inner.learn_offline(training, count, batch_size)

    def state_dict(self) -> State:
        """The lowest loss, the updates since, and the weights at the lowest loss."""
        lowest = self.lowest
        return {"loss": torch.tensor(lowest.loss), "waited": lowest.waited, "weights": lowest.weights.clone()}

    def load_state_dict(self, state: State, /) -> None:
        """Load the state that `state_dict` returned. Raises ValueError: a number cannot be read."""
        self.lowest = Lowest(float(state["loss"]), int(state["waited"]), state["weights"].clone())
