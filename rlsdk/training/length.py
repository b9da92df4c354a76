"""The length of a training: a whole number of rounds, or exactly `total_timesteps` steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from rlsdk.errors import PluginError, SettingsError, UsageError
from rlsdk.interfaces import Collector, HasRolloutLength, NormalizesEpisodes, Plan, Policy, Training
from rlsdk.interfaces.abilities import ability
from rlsdk.records import Rollout
from rlsdk.training.off_policy import OffPolicyPlan

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


def rounded_up(plan: Plan[Training], num_envs: int, total: int) -> str | None:
    """One line about a training of `total` steps that ends later, because rounds are whole; None if it does not."""
    if not total:
        return None
    remedy = f"; exact_steps=True (--exact-steps) ends at {total:,}"
    episodes = f"training ends with the round of episodes in which step {total:,} falls"
    if isinstance(plan, OffPolicyPlan):
        if plan.episodes:
            return episodes + remedy
        size = plan.train_every * num_envs
    elif isinstance(plan, NormalizesEpisodes):  # exact_steps is refused there
        return episodes
    else:
        rollouts = ability(plan, HasRolloutLength)
        size = 1 if rollouts is None or plan.unit != "steps" else rollouts.n_steps * num_envs
    if not total % size:
        return None
    return f"{total:,} steps become {total + -total % size:,}: rounds of {size:,} steps are whole{remedy}"


def require_exact(plan: Plan[Training], num_envs: int, total: int, algorithm: str) -> None:
    """Check that a training can end after exactly `total` steps.

    Raises:
        UsageError: the algorithm plays whole episodes.
        SettingsError: the environments, which are stepped together, cannot make this number of steps.
    """
    if isinstance(plan, NormalizesEpisodes):
        raise _whole_episodes(algorithm)
    if plan.unit == "steps" and total % num_envs:
        near = total - total % num_envs
        raise SettingsError(
            f"exact_steps: {num_envs} environments are stepped together and cannot make {total} steps; give"
            f" {f'{near} or ' if near else ''}{near + num_envs}, or leave exact_steps out"
        )


def _whole_episodes(what: str) -> UsageError:
    return UsageError(f"exact_steps: {what} plays whole episodes, which are not cut; leave exact_steps out")


class ExactCollector:
    """Collects a limited number of steps, so that a training ends at the exact count.

    The last rollout is shorter and has `stopped` set, as one that a callback ended. All else is that of the collector
    `inner`.
    """

    def __init__(self, inner: Collector, left: int) -> None:
        """`left`: the vector steps until the end."""
        self.inner, self.left = inner, left

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def acting(self) -> Any:
        return self.inner.acting

    @property
    def num_envs(self) -> int:
        return self.inner.num_envs

    def end_round(self) -> None:
        self.inner.end_round()

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> Rollout[CarryT, ExtrasT]:
        """See `rlsdk.interfaces.Collector`.

        Raises:
            PluginError: the plan collects again after a rollout with `stopped`.
        """
        if not self.left:
            raise PluginError(
                "its plan collects again after a rollout with `stopped`, so it cannot end exactly; end the round there, or"
                " leave exact_steps out"
            )
        wanted = min(length, self.left) if hasattr(length, "__index__") else length
        rollout = self.inner.collect(policy, wanted, on_step=on_step, ends_round=ends_round)
        self.left -= len(rollout.steps.reward)
        return rollout if self.left else replace(rollout, stopped=True)

    def play(self, *_: object) -> NoReturn:
        """Raises UsageError: whole episodes have no exact number of steps."""
        raise _whole_episodes("the plan")
