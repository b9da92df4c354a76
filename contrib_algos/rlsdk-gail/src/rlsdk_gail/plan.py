"""The training loop: PPO's, once the data set is known to be usable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from rlsdk.interfaces import BuildContext, Training
from rlsdk.records import Cursor, Report
from rlsdk.training import OnPolicyPlan
from rlsdk_gail.expert import ExpertSteps


@dataclass(frozen=True, slots=True)
class ImitationPlan:
    """Rollouts and updates of `loop`. Without the data set it fails before the first step."""

    loop: OnPolicyPlan
    expert: ExpertSteps

    @property
    def needs_environment(self) -> bool:
        """That of the loop."""
        return self.loop.needs_environment

    @property
    def unit(self) -> Literal["steps", "updates"]:
        """That of the loop."""
        return self.loop.unit

    @property
    def log_every(self) -> Literal["episodes", "rounds"]:
        """That of the loop."""
        return self.loop.log_every

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
