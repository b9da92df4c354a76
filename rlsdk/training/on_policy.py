"""The on-policy training loop: collect a rollout, learn from it, discard it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol

from rlsdk.errors import SettingsError
from rlsdk.interfaces import AlgorithmAbilities, BuildContext, Training
from rlsdk.interfaces.abilities import ability, unlike_metrics
from rlsdk.records import Cursor, Report


class RolloutSettings(Protocol):
    """The hyper-parameters of an on-policy algorithm that its training loop uses."""

    @property
    def n_steps(self) -> int: ...
    @property
    def normalize_advantage(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class OnPolicyPlan:
    """Collects `n_steps` vector steps, then makes one `update` with the rollout."""

    n_steps: int
    needs_environment: ClassVar[bool] = True
    unit: ClassVar[Literal["steps"]] = "steps"
    log_every: ClassVar[Literal["rounds"]] = "rounds"

    @staticmethod
    def of(config: RolloutSettings, context: BuildContext) -> OnPolicyPlan:
        """Create the plan from the hyper-parameters of an algorithm.

        Raises:
            SettingsError: a rollout would have a single step, whose advantage cannot be normalized.
        """
        # the deviation of one advantage is NaN
        if config.normalize_advantage and config.n_steps * context.num_envs < 2:
            raise SettingsError(
                f"n_steps = {config.n_steps} with {context.num_envs} environment gives one step per rollout, whose advantage"
                " cannot be normalized; raise n_steps, or set normalize_advantage = false"
            )
        return OnPolicyPlan(config.n_steps)

    def with_settings(self, config: object, context: BuildContext) -> OnPolicyPlan:
        """See `rlsdk.interfaces.PlanAbilities`."""
        if hasattr(config, "n_steps") and hasattr(config, "normalize_advantage"):
            return OnPolicyPlan.of(config, context)
        return replace(self, n_steps=getattr(config, "n_steps", self.n_steps))

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` environment steps; yields after every rollout and its update.

        Rollouts always have `n_steps` steps, so the last one may pass the end, unless the training ends exactly: then
        the last one is shorter. A rollout that a callback cut short is counted, but the algorithm does not learn from
        it. If the algorithm has `updates`, that count of updates is reported.
        """
        collector, parts = training.collector, training.parts
        policy, algorithm = parts.behavior_policy, parts.algorithm
        counter = ability(algorithm, AlgorithmAbilities, "updates")
        discarding = ability(algorithm, AlgorithmAbilities, "discarded")
        while cursor.env_steps < training.end:
            rollout = collector.collect(policy, self.n_steps)
            length = rollout.steps.reward.shape[0]
            cursor, metrics = Cursor(cursor.env_steps + length * collector.num_envs, cursor.updates), None
            # a rollout that a callback cut short would be learned from with another batch size than was chosen
            whole = length == self.n_steps or training.ends_exactly(cursor.env_steps)
            if whole and bool(rollout.steps.valid.any()):  # all rows may be padding rows
                metrics = algorithm.update(rollout, progress=training.progress(cursor.env_steps))
                if metrics is None:
                    raise unlike_metrics(metrics)
                # PPO counts epochs and not rollouts, as the peers do
                cursor = Cursor(cursor.env_steps, cursor.updates + 1 if counter is None else counter.updates)
            elif rollout.stopped and discarding is not None:  # not for rollouts that hold padding rows only
                discarding.discarded(rollout)
            yield cursor, Report(cursor.env_steps, cursor.updates, rollout.episodes, metrics)
