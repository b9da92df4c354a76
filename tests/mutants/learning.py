"""Bugs of updates, and of the candidates and episodes of population methods."""

from __future__ import annotations

from typing import Any

import attrs
import torch

from rlsdk.environments import EpisodeEnv
from rlsdk.networks import SquashedActor
from rlsdk.updates import FlatOptimizer, SoftActorCritic
from rlsdk_ars import episodes, population
from rlsdk_ars.algorithm import RandomSearch
from rlsdk_ars.search_policy import NumpyPolicy
from tests.mutants.catalog import Patch, mutant


@mutant("algorithm.state-round-trip")
def optimizer_moments_are_not_restored(patch: Patch) -> None:
    patch.setattr(FlatOptimizer, "load_state_dict", lambda self, state: None)


@mutant("algorithm.update-learns")
def the_actor_is_never_updated(patch: Patch) -> None:
    evaluate = SquashedActor.evaluate

    def without_gradient(self: Any, *arguments: Any) -> Any:
        return evaluate(self, *arguments)[0], lambda *grads: None

    patch.setattr(SquashedActor, "evaluate", without_gradient)


@mutant("algorithm.metrics")
def a_metric_keeps_its_graph(patch: Patch) -> None:
    kind = SoftActorCritic
    update = kind.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        return {**update(self, batch, progress=progress), "train/extra": next(self.actor.parameters()).sum()}

    patch.setattr(kind, "update", broken)


@mutant("algorithm.batch-unchanged")
def rewards_are_scaled_in_place(patch: Patch) -> None:
    kind = SoftActorCritic
    update = kind.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        batch.reward.mul_(0.5)
        return update(self, batch, progress=progress)

    patch.setattr(kind, "update", broken)


@mutant("population.proposal", "ars")
def directions_come_from_the_global_generator(patch: Patch) -> None:
    propose = RandomSearch.propose

    def broken(self: Any, *, progress: float) -> Any:
        self.generator = torch.default_generator
        return propose(self, progress=progress)

    patch.setattr(RandomSearch, "propose", broken)


@mutant("population.rows-independent", "ars")
def candidates_share_a_normalization(patch: Patch) -> None:
    make = NumpyPolicy.__call__

    def broken(self: Any, parameters: Any) -> Any:
        act = make(self, parameters)
        return lambda vectors: act(vectors - vectors.mean(0))

    patch.setattr(NumpyPolicy, "__call__", broken)


@mutant("population.rows-independent", "ars", alone=True)
def observations_are_rounded_where_many_candidates_play(patch: Patch) -> None:
    make = NumpyPolicy.__call__

    def broken(self: Any, parameters: Any) -> Any:
        act = make(self, parameters)
        return lambda vectors: act(vectors * (1.0 + 3e-7 * (len(vectors) > 4)))

    patch.setattr(NumpyPolicy, "__call__", broken)


@mutant("population.same-everywhere", "ars")
def episodes_are_not_seeded(patch: Patch) -> None:
    begin = EpisodeEnv.begin
    patch.setattr(EpisodeEnv, "begin", lambda self, seed: begin(self, None))


@mutant("population.same-everywhere", "ars", alone=True)
def seeds_depend_on_how_many_environments_there_are(patch: Patch) -> None:
    patch.setattr(population, "play_episodes", _with_other_seeds)


def _with_other_seeds(make_act: Any, space: Any, environments: Any, requests: Any) -> Any:
    """Play the episodes with other seeds. Pickle finds this function by its name, so that workers can call it too."""
    moved = [attrs.evolve(one, seeds=tuple(seed + len(environments) for seed in one.seeds)) for one in requests]
    return episodes.play_episodes(make_act, space, environments, moved)


@mutant("algorithm.state-round-trip")
def optimizer_moments_are_not_stored(patch: Patch) -> None:
    patch.setattr(FlatOptimizer, "state_dict", lambda self: {})
    patch.setattr(FlatOptimizer, "load_state_dict", lambda self, state: None)


@mutant("algorithm.batch-unchanged", alone=True)
def the_positions_are_overwritten(patch: Patch) -> None:
    kind = SoftActorCritic
    update = kind.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        batch.index.zero_()
        return update(self, batch, progress=progress)

    patch.setattr(kind, "update", broken)


@mutant("population.proposal", "ars", alone=True)
def candidates_know_the_global_seed(patch: Patch) -> None:
    propose = RandomSearch.propose
    shift = 1e-3 / 97
    patch.setattr(
        RandomSearch,
        "propose",
        lambda self, *, progress: propose(self, progress=progress) + shift * (torch.initial_seed() % 97),
    )
