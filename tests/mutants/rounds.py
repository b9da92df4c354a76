"""Bugs of training loops: in the episodes they play, the scores and the counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlsdk.settings.action_noise import OrnsteinUhlenbeckActionNoise
from rlsdk.training import OffPolicyPlan, OnPolicyPlan
from rlsdk.training.off_policy import ReplayUpdates
from rlsdk.updates import SoftActorCritic
from rlsdk_ars import Scored, episodes, population
from rlsdk_ars.algorithm import RandomSearch
from tests.mutants.catalog import Patch, mutant


@mutant("population.episodes-differ", "ars", alone=True)
def every_episode_of_a_candidate_has_the_same_seed(patch: Patch) -> None:
    seeds = population._seeds
    patch.setattr(population, "_seeds", lambda count, *of: seeds(1, *of) * count)


@mutant("population.episodes-differ", "ars")
def every_round_has_the_same_seeds(patch: Patch) -> None:
    seeds = population._seeds
    patch.setattr(population, "_seeds", lambda count, seed, iteration, i: seeds(count, seed, 0, i))


@mutant("population.scores-are-true", "ars", alone=True)
def scores_are_of_the_longest_episode(patch: Patch) -> None:
    def broken(played: Any, offset: float) -> float:
        length, total = max((each.length, each.episode_return) for each in played)
        return float(total + offset * length)

    patch.setattr(population, "_score", broken)


@mutant("population.statistics", "ars", alone=True)
def statistics_are_of_first_observations(patch: Patch) -> None:
    moments = episodes._moments
    patch.setattr(episodes, "_moments", lambda seen: moments([rows[:1].repeat(len(rows), 0) for rows in seen]))


@mutant("training.counts", alone=True)
def updates_of_earlier_rounds_are_not_counted(patch: Patch) -> None:
    rounds = OffPolicyPlan.rounds

    def broken(self: Any, *arguments: Any) -> Any:
        for cursor, report in rounds(self, *arguments):
            yield cursor, replace(report, updates=int(report.metrics is not None))

    patch.setattr(OffPolicyPlan, "rounds", broken)


@mutant("training.counts", "trpo")
def steps_are_those_of_one_environment(patch: Patch) -> None:
    rounds = OnPolicyPlan.rounds

    def broken(self: Any, training: Any, cursor: Any) -> Any:
        for after, report in rounds(self, training, cursor):
            yield after, replace(report, env_steps=report.env_steps // training.collector.num_envs)

    patch.setattr(OnPolicyPlan, "rounds", broken)


@mutant("learns.two-state-chain", "ars")
def scores_are_whole_numbers(patch: Patch) -> None:
    update = RandomSearch.update

    def broken(self: Any, batch: Scored, *, progress: float) -> Any:
        return update(self, replace(batch, score=batch.score.trunc()), progress=progress)

    patch.setattr(RandomSearch, "update", broken)


@mutant("learns.two-state-chain", "ars", alone=True)
def scores_above_1_are_whole_numbers(patch: Patch) -> None:
    update = RandomSearch.update

    def broken(self: Any, batch: Any, **keywords: Any) -> Any:
        score = torch.where(batch.score > 1.0, batch.score.floor(), batch.score)
        return update(self, replace(batch, score=score), **keywords)

    patch.setattr(RandomSearch, "update", broken)


@mutant("training.samples-differ", alone=True)
def every_sample_begins_with_the_same_random_numbers(patch: Patch) -> None:
    begin = ReplayUpdates.__init__

    def broken(self: Any, parts: Any, streams: Any) -> None:
        begin(self, parts, streams)
        sample, self.together = self.sample, None
        self.sample = lambda size, generator: sample(size, torch.Generator().manual_seed(0))

    patch.setattr(ReplayUpdates, "__init__", broken)


@mutant("algorithm.state-restored", "ppo-lagrangian")
def a_number_that_stays_at_first_is_not_restored(patch: Patch) -> None:
    from acme_constrained.algorithm import LagrangianPPO

    restore = LagrangianPPO.load_state_dict
    patch.setattr(
        LagrangianPPO,
        "load_state_dict",
        lambda self, state: restore(self, {**state, "multiplier": self.multiplier}),
    )


@mutant("policy.episode-start-forgets")
def action_noise_goes_on_in_the_next_episode(patch: Patch) -> None:
    patch.setattr(OrnsteinUhlenbeckActionNoise, "started", lambda self, state, is_first: state)


@mutant("rollout.info-at-all-ends", "ppo-lagrangian", alone=True)
def costs_of_episodes_at_a_time_limit_are_not_seen(patch: Patch) -> None:
    from acme_constrained.algorithm import LagrangianPPO

    found = LagrangianPPO._episode_costs
    patch.setattr(
        LagrangianPPO,
        "_episode_costs",
        lambda self, steps: found(self, replace(steps, truncated=torch.zeros_like(steps.truncated))),
    )


@mutant("rollout.episodes-permuted", "ppo-lagrangian", alone=True)
def one_start_forgets_the_costs_of_all(patch: Patch) -> None:
    from acme_constrained.algorithm import LagrangianPPO

    found = LagrangianPPO._episode_costs

    def broken(self: Any, steps: Any) -> Any:
        first = steps.observation.is_first
        anywhere = first.any(1, keepdim=True).expand_as(first)
        return found(self, replace(steps, observation=replace(steps.observation, is_first=anywhere)))

    patch.setattr(LagrangianPPO, "_episode_costs", broken)


@mutant("algorithm.state-round-trip", alone=True)
def a_fixed_random_number_is_of_the_seed_and_not_stored(patch: Patch) -> None:
    begin, update = SoftActorCritic.__init__, SoftActorCritic.update

    def begun(self: Any, *arguments: Any, **settings: Any) -> None:
        begin(self, *arguments, **settings)
        self.shift = self.generator.initial_seed() % 97 / 970

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        return update(self, replace(batch, reward=batch.reward + self.shift), progress=progress)

    patch.setattr(SoftActorCritic, "__init__", begun)
    patch.setattr(SoftActorCritic, "update", broken)
