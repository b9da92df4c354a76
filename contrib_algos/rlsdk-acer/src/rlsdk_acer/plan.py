"""The training loop of ACER: a rollout, one update from it, then a random number of updates from the replay buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator, Tensor

from rlsdk.errors import DivergenceError
from rlsdk.interfaces import BuildContext, Parts, Training
from rlsdk.records import Cursor, Metrics, Report, Rollout, Sequences, successors
from rlsdk.training import ReplayUpdates
from rlsdk.tree import leaves
from rlsdk_acer.config import ACERConfig
from rlsdk_acer.network import Carry


def as_sequences(rollout: Rollout[Carry, Mapping[str, Tensor]], gamma: float) -> Sequences[Carry]:
    """Convert a rollout [T, B] to the sequences that the replay buffer would return for it."""
    steps = rollout.steps
    discount = gamma * (~steps.terminated).to(steps.reward.dtype)
    index = torch.arange(steps.reward.shape[1], device=discount.device)
    return Sequences(steps, successors(rollout), discount, steps.valid, rollout.initial_carry, index)


def poisson(mean: float, generator: Generator) -> int:
    """Draw a number from the Poisson distribution with this mean."""
    return int(torch.poisson(torch.tensor(mean, device=generator.device), generator=generator))


def _mean(fresh: Metrics, replayed: Metrics, count: int) -> Metrics:
    """The means over 1 + `count` updates: one from a rollout, and `count` from the replay buffer."""
    return {name: (fresh[name] + count * replayed[name]) / (1 + count) for name in fresh}


@dataclass(frozen=True, slots=True)
class ReplayedRollouts:
    """Each round collects `n_steps` of every environment and makes one update from them. Then it makes `replay_ratio` updates
    on average from the replay buffer, each from one stored rollout per environment."""

    n_steps: int
    replay_ratio: float
    replay_start: int
    """The number of transitions in the replay buffer before the first update from it."""
    gamma: float
    needs_environment: bool = True
    unit: Literal["steps"] = "steps"
    log_every: Literal["rounds"] = "rounds"

    @staticmethod
    def of(config: ACERConfig) -> ReplayedRollouts:
        """Make the plan from the hyper-parameters."""
        return ReplayedRollouts(config.n_steps, config.replay_ratio, config.replay_start, config.gamma)

    def with_settings(self, config: ACERConfig, context: BuildContext) -> ReplayedRollouts:
        """See `rlsdk.interfaces.PlanAbilities`."""
        return ReplayedRollouts.of(config)

    def check_parts(self, parts: Parts) -> None:
        """See `rlsdk.interfaces.PlanAbilities`."""
        ReplayUpdates.check(parts)

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` environment steps.

        Rollouts are always whole, so the last one may exceed the end, unless the training ends exactly. A rollout that a
        callback cut short is stored in the replay buffer, but no update is made in its round.

        Raises:
            DivergenceError: the probabilities or the initial carry of a rollout are not finite. The rollout is not stored.
        """
        collector, parts = training.collector, training.parts
        replay, generator = ReplayUpdates(parts, training.streams), training.streams["replay"]
        while cursor.env_steps < training.end:
            rollout = collector.collect(parts.behavior_policy, self.n_steps)
            # stored, such a rollout would make later updates NaN, even after the policy was restored
            if not all(bool(leaf.isfinite().all()) for leaf in leaves((rollout.initial_carry, rollout.steps.extras))):
                raise DivergenceError("training diverged: probabilities or memories of the policy are NaN or infinite")
            replay.buffer.extend(rollout)
            length = len(rollout.steps.reward)
            cursor = replace(cursor, env_steps=cursor.env_steps + length * collector.num_envs)
            metrics = None
            whole = length == self.n_steps or training.ends_exactly(cursor.env_steps)
            if whole and bool(rollout.steps.valid.any()):
                progress = training.progress(cursor.env_steps)
                fresh = parts.preprocess_batch(as_sequences(rollout, self.gamma))
                metrics = parts.algorithm.update(fresh, progress=progress)
                count = poisson(self.replay_ratio, generator) if len(replay.buffer) >= self.replay_start else 0
                if count:
                    metrics = _mean(metrics, replay.update(count, collector.num_envs, progress), count)
                cursor = replace(cursor, updates=cursor.updates + 1 + count)
            yield cursor, Report(cursor.env_steps, cursor.updates, rollout.episodes, metrics)

    def learn_offline(self, training: Training, count: int, batch_size: int | None) -> Metrics:
        """Make `count` updates from the replay buffer, each from `batch_size` rollouts (None: the number of environments)."""
        size = training.collector.num_envs if batch_size is None else batch_size
        return ReplayUpdates(training.parts, training.streams).update(count, size, 0.0)
