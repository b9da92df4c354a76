"""The training loop: PPO's, once the data set is known to be usable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rlsdk.interfaces import BuildContext, Training
from rlsdk.records import Cursor, Report
from rlsdk.training import OnPolicyPlan
from rlsdk_gail.expert import ExpertSteps


@dataclass(frozen=True, slots=True)
class ImitationPlan:
    """Rollouts and updates of `loop`. Without the data set it fails before the first step."""

    loop: OnPolicyPlan
    expert: ExpertSteps
    needs_environment: ClassVar[bool] = True
    unit: ClassVar[Literal["steps"]] = "steps"
    log_every: ClassVar[Literal["rounds"]] = "rounds"

    @property
    def n_steps(self) -> int:
        """Vector steps of a rollout."""
        return self.loop.n_steps

    def with_settings(self, config: object, context: BuildContext) -> ImitationPlan:
        """See `rlsdk.interfaces.FollowsSettings`."""
        return replace(self, loop=self.loop.with_settings(config, context))

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """See `OnPolicyPlan.rounds`; raises as `ExpertSteps.require`."""
        self.expert.require()
        yield from self.loop.rounds(training, cursor)
