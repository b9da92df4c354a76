"""The training loop of PPO, after a check of the data set."""

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
    """Runs `loop`, after a check of the data set. Without a usable data set it fails before the first environment step."""

    loop: OnPolicyPlan
    expert: ExpertSteps

    @property
    def needs_environment(self) -> bool:
        """The value of `loop`."""
        return self.loop.needs_environment

    @property
    def unit(self) -> Literal["steps", "updates"]:
        """The value of `loop`."""
        return self.loop.unit

    @property
    def log_every(self) -> Literal["episodes", "rounds"]:
        """The value of `loop`."""
        return self.loop.log_every

    @property
    def n_steps(self) -> int:
        """The number of steps of each environment in a rollout."""
        return self.loop.n_steps

    def with_settings(self, config: object, context: BuildContext) -> ImitationPlan:
        """See `rlsdk.interfaces.PlanAbilities`."""
        return replace(self, loop=self.loop.with_settings(config, context))

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """See `OnPolicyPlan.rounds`. Raises the same errors as `ExpertSteps.require`."""
        self.expert.require()
        yield from self.loop.rounds(training, cursor)
