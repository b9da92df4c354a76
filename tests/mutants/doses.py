"""Bugs in how much settings do, in counts, in rows, and in formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from rlsdk.interfaces import Training
from rlsdk.math import values
from rlsdk.networks.continuous import SquashedActor
from rlsdk.settings import evolve
from rlsdk.settings.off_policy import QLearningConfig
from rlsdk.settings.schedules import Constant
from rlsdk.training import OnPolicyPlan
from rlsdk.updates import FlatOptimizer, QLearning, TargetNetwork, clipped_policy, minibatches
from rlsdk_ars.algorithm import RandomSearch
from rlsdk_ars.config import ARSConfig
from rlsdk_trpo import algorithm as trpo
from tests.mutants.catalog import Patch, mutant


@mutant("dose.learning-rate", "qrdqn", alone=True)
def a_constant_rate_falls(patch: Patch) -> None:
    update = QLearning.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        config = self.config
        rate = config.learning_rate(1.0 - progress) * (1.0 - progress / 4)
        self.config = evolve(config, {"learning_rate": Constant(rate)})
        try:
            return update(self, batch, progress=progress)
        finally:
            self.config = config

    patch.setattr(QLearning, "update", broken)


@mutant("dose.schedules", "ars", alone=True)
def the_deviation_follows_the_square_of_progress(patch: Patch) -> None:
    propose = RandomSearch.propose
    patch.setattr(RandomSearch, "propose", lambda self, *, progress: propose(self, progress=progress**2))


@mutant("dose.weights", "v-trace", alone=True)
def the_entropy_weight_is_squared(patch: Patch) -> None:
    from acme_vtrace.algorithm import VTrace

    update = VTrace.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        config = self.config
        self.config = evolve(config, {"ent_coef": config.ent_coef**2})
        try:
            return update(self, batch, progress=progress)
        finally:
            self.config = config

    patch.setattr(VTrace, "update", broken)


@mutant("dose.tau", alone=True)
def targets_move_half_as_far(patch: Patch) -> None:
    update = TargetNetwork.update
    patch.setattr(TargetNetwork, "update", lambda self, tau: update(self, tau if tau == 1.0 else tau / 2))


@mutant("dose.exploration", "qrdqn", alone=True)
def exploration_falls_at_half_speed(patch: Patch) -> None:
    rate = QLearningConfig.exploration_rate
    patch.setattr(QLearningConfig, "exploration_rate", lambda self, progress: rate(self, progress / 2))


@mutant("batch.rows-averaged", "cloning", alone=True)
def unlikely_rows_count_more_than_others(patch: Patch) -> None:
    from acme_cloning.policy import CloningPolicy

    log_prob = CloningPolicy.log_prob

    def broken(self: Any, *arguments: Any) -> Any:
        found = log_prob(self, *arguments)
        return found * len(found) * (-found.detach() / 4).softmax(0)

    patch.setattr(CloningPolicy, "log_prob", broken)


@mutant("batch.duplicates", "a2c", alone=True)
def advantages_grow_with_the_number_of_rows(patch: Patch) -> None:
    advantages = minibatches.advantages

    def broken(*arguments: Any) -> Any:
        advantage, target, whole = advantages(*arguments)
        return advantage * (len(advantage) / 48.0), target, whole

    patch.setattr(minibatches, "advantages", broken)


@mutant("training.gradients-fresh", "rnd", alone=True)
def gradients_are_set_to_zero_once_an_update(patch: Patch) -> None:
    from acme_rnd.algorithm import RandomNetworkDistillation

    update, zero_grad = RandomNetworkDistillation.update, FlatOptimizer.zero_grad

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        zero_grad(self.optimizer)
        return update(self, batch, progress=progress)

    patch.setattr(RandomNetworkDistillation, "update", broken)
    patch.setattr(FlatOptimizer, "zero_grad", lambda self: None)


@mutant("count.whole-numbers", "ars", alone=True)
def one_direction_more_is_followed(patch: Patch) -> None:
    top = ARSConfig.top.fget  # type: ignore[attr-defined]  # it is a property
    patch.setattr(ARSConfig, "top", property(lambda self: min(top(self) + 1, self.n_delta)))


def _changed_rounds(patch: Patch, change: Any) -> None:
    rounds = OnPolicyPlan.rounds

    def broken(self: Any, training: Any, cursor: Any) -> Iterator[Any]:
        yield from change(lambda given: rounds(self, given, cursor), training)

    patch.setattr(OnPolicyPlan, "rounds", broken)


@mutant("count.training-ends", "a2c", alone=True)
def a_training_has_a_round_too_many(patch: Patch) -> None:
    def change(rounds: Any, training: Any) -> Iterator[Any]:
        yield from rounds(replace(training, end=training.end + 1, schedule_end=training.schedule_end or training.end))

    _changed_rounds(patch, change)


@mutant("count.episodes", "a2c", alone=True)
def the_first_episode_of_a_round_is_not_reported(patch: Patch) -> None:
    def change(rounds: Any, training: Any) -> Iterator[Any]:
        for cursor, report in rounds(training):
            yield cursor, replace(report, episodes=report.episodes[1:])

    _changed_rounds(patch, change)


@mutant("count.progress", "a2c", alone=True)
def progress_is_late(patch: Patch) -> None:
    progress = Training.progress
    patch.setattr(Training, "progress", lambda self, count: 0.7 * progress(self, count))


@mutant("seeds.draws-are-fresh", "cross-entropy", alone=True)
def every_round_has_the_noise_of_the_first(patch: Patch) -> None:
    from acme_cross_entropy.algorithm import CrossEntropy

    propose = CrossEntropy.propose

    def broken(self: Any, *, progress: float) -> Any:
        self.generator.manual_seed(self.generator.initial_seed())
        return propose(self, progress=progress)

    patch.setattr(CrossEntropy, "propose", broken)


@mutant("policy.acting-changes-nothing", alone=True)
def acting_on_three_rows_changes_a_weight(patch: Patch) -> None:
    act = SquashedActor.act

    def broken(self: Any, observation: Any, *arguments: Any, **named: Any) -> Any:
        if len(observation.is_first) == 3 and not named.get("deterministic"):
            with torch.no_grad():
                self.mean.bias.add_(1e-3)
        return act(self, observation, *arguments, **named)

    patch.setattr(SquashedActor, "act", broken)


@mutant("formula.reference", "qrdqn", alone=True)
def quantiles_are_not_at_the_middle_of_their_intervals(patch: Patch) -> None:
    asymmetry = values._asymmetry
    patch.setattr(values, "_asymmetry", lambda count, *kind: asymmetry(count, *kind) + 0.8 / count)


@mutant("formula.reference", "maskable-ppo")
def ratios_are_clipped_at_twice_the_range(patch: Patch) -> None:
    grad = clipped_policy.clipped_surrogate_grad
    patch.setattr(clipped_policy, "clipped_surrogate_grad", lambda ratio, gain, clip: grad(ratio, gain, 2.0 * clip))


@mutant("formula.reference", "maskable-ppo")
def advantages_are_always_normalized(patch: Patch) -> None:
    terms = clipped_policy.LossTerms
    patch.setattr(clipped_policy, "LossTerms", lambda *numbers: terms(*numbers[:4], True))


@mutant("formula.reference", "trpo")
def the_step_ends_at_half_of_the_divergence(patch: Patch) -> None:
    longest = trpo.longest_step
    patch.setattr(trpo, "longest_step", lambda bound, curvature: longest(bound / 2.0, curvature))


@mutant("training.steps-of-gradients", "qrdqn", alone=True)
def every_gradient_makes_two_steps(patch: Patch) -> None:
    step = FlatOptimizer.step

    def broken(self: Any, *arguments: Any) -> None:
        step(self, *arguments)
        step(self, *arguments)

    patch.setattr(FlatOptimizer, "step", broken)


@mutant("training.steps-of-gradients", "qrdqn")
def every_third_gradient_makes_no_step(patch: Patch) -> None:
    step, calls = FlatOptimizer.step, count()
    patch.setattr(FlatOptimizer, "step", lambda self, *rest: step(self, *rest) if next(calls) % 3 else None)


@mutant("count.minibatches", "maskable-ppo", alone=True)
def half_of_the_minibatches_are_left_out(patch: Patch) -> None:
    shuffled = clipped_policy.shuffled

    def broken(*arguments: Any) -> Iterator[Any]:
        parts = list(shuffled(*arguments))
        yield from parts[: -(-len(parts) // 2)]

    patch.setattr(clipped_policy, "shuffled", broken)


@mutant("population.candidates-moved", "ars", alone=True)
def parameters_grow_by_themselves(patch: Patch) -> None:
    update = RandomSearch.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        self.values.mul_(1.01)
        return update(self, batch, progress=progress)

    patch.setattr(RandomSearch, "update", broken)


@mutant("population.elites", "cross-entropy", alone=True)
def the_mean_goes_half_of_the_way(patch: Patch) -> None:
    from acme_cross_entropy.algorithm import CrossEntropy

    update = CrossEntropy.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        before = self.mean.clone()
        metrics = update(self, batch, progress=progress)
        self.mean.add_(before).div_(2.0)
        return metrics

    patch.setattr(CrossEntropy, "update", broken)


@mutant("dose.gradient-norm", "v-trace", alone=True)
def gradients_may_be_twice_as_large(patch: Patch) -> None:
    step = FlatOptimizer.step
    patch.setattr(
        FlatOptimizer, "step", lambda self, rate, norm=None: step(self, rate, None if norm is None else 2.0 * norm)
    )


@mutant("count.stopped-rounds", "v-trace", alone=True)
def an_update_follows_a_stop(patch: Patch) -> None:
    from acme_vtrace.algorithm import ReplayedRollouts

    rounds = ReplayedRollouts.rounds

    def broken(self: Any, training: Any, cursor: Any) -> Iterator[Any]:
        for after, report in rounds(self, training, cursor):
            if report.metrics is None:
                batch = training.parts.sample(self.batch_size, training.streams["replay"])
                training.parts.algorithm.update(batch, progress=1.0)
            yield after, report

    patch.setattr(ReplayedRollouts, "rounds", broken)


@mutant("batch.normalized", "dyna", alone=True)
def rewards_of_a_memory_are_not_normalized(patch: Patch) -> None:
    from acme_dyna.algorithm import Dyna

    normalized = Dyna._normalized
    patch.setattr(Dyna, "_normalized", lambda self, moves: replace(normalized(self, moves), reward=moves.reward))
