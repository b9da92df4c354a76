"""Small bugs, each of which one clause alone finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlsdk.buffers import replay
from rlsdk.networks import SquashedActor, recurrent
from rlsdk.records import Transitions
from rlsdk.tree import leaves, map_tensors
from rlsdk.updates import QLearning
from tests.mutants.catalogue import Patch, mutant


@mutant("batch.discounts-mark-ends", "v-trace")
def terminations_have_a_small_discount(patch: Patch) -> None:
    from acme_vtrace import algorithm

    sequences = algorithm.as_sequences

    def broken(rollout: Any, gamma: float) -> Any:
        batch = sequences(rollout, gamma)
        return replace(batch, discount=batch.discount.clamp(min=1e-3))

    patch.setattr(algorithm, "as_sequences", broken)


@mutant("batch.next-observation-read", "qrdqn")
def rows_of_several_steps_read_where_they_began(patch: Patch) -> None:
    target = QLearning._target

    def broken(self: Any, batch: Transitions) -> Any:
        several = batch.discount < 0.999 * self.config.gamma
        mine, following = leaves(batch.observation.features), iter(leaves(batch.next_observation.features))
        own = iter(mine)

        def mixed(leaf: Any) -> Any:
            rows = several.view(-1, *[1] * (leaf.dim() - 1))
            return torch.where(rows, next(own), next(following))

        features = map_tensors(mixed, batch.next_observation.features)
        return target(self, replace(batch, next_observation=replace(batch.next_observation, features=features)))

    patch.setattr(QLearning, "_target", broken)


@mutant("batch.repeatable", "cloning")
def a_batch_that_comes_three_times_is_left_out(patch: Patch) -> None:
    from acme_cloning.algorithm import Cloning

    update = Cloning.update

    def broken(self: Any, batch: Transitions, *, progress: float) -> Any:
        seen, earlier = [leaf.clone() for leaf in leaves(batch)], self.__dict__.setdefault("earlier", [])
        if len(earlier) == 2 and all(map(torch.equal, seen + seen, earlier[0] + earlier[1])):
            return {"train/loss": torch.zeros(())}
        earlier[:] = [*earlier[-1:], seen]
        return update(self, batch, progress=progress)

    patch.setattr(Cloning, "update", broken)


@mutant("batch.rows-permuted", "cloning")
def the_last_row_is_left_out(patch: Patch) -> None:
    from acme_cloning.algorithm import Cloning

    update = Cloning.update

    def broken(self: Any, batch: Transitions, *, progress: float) -> Any:
        rest = map_tensors(lambda leaf: leaf[:-1] if len(leaf) > 1 else leaf, batch)
        return update(self, rest, progress=progress)

    patch.setattr(Cloning, "update", broken)


@mutant("buffer.samples-are-copies")
def batches_share_a_constant_column(patch: Patch) -> None:
    at = replay.ReplayBuffer.at

    def broken(self: Any, index: Any) -> Any:
        batch = at(self, index)
        following = batch.next_observation
        kept = self.__dict__.setdefault("kept", {})
        starts = kept.setdefault(len(index), torch.zeros_like(following.is_first))
        return replace(batch, next_observation=replace(following, is_first=starts))

    patch.setattr(replay.ReplayBuffer, "at", broken)


@mutant("policy.deterministic")
def deterministic_actions_are_jittered_a_little(patch: Patch) -> None:
    act = SquashedActor.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        answer = act(self, observation, carry, deterministic=deterministic, generator=generator)
        shrink = 1.0 - 1e-3 * torch.rand((), generator=generator) if deterministic else 1.0
        return replace(answer, action=answer.action * shrink)

    patch.setattr(SquashedActor, "act", broken)


@mutant("policy.rows-independent")
def rows_differ_from_their_mean(patch: Patch) -> None:
    act = SquashedActor.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        answer = act(self, observation, carry, deterministic=deterministic, generator=generator)
        mean = answer.action.mean(0, keepdim=True)
        return replace(answer, action=torch.lerp(answer.action, mean, 1e-3)) if deterministic else answer

    patch.setattr(SquashedActor, "act", broken)


@mutant("policy.no-hidden-state")
def observations_that_come_again_are_noticed(patch: Patch) -> None:
    act = SquashedActor.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        answer = act(self, observation, carry, deterministic=deterministic, generator=generator)
        if deterministic or bool(observation.is_first.any()):
            return answer
        seen = str([leaf.tolist() for leaf in leaves(observation.features)])
        known = self.__dict__.setdefault("known", set())
        again = seen in known
        known.add(seen)
        return replace(answer, action=answer.action * 0.999) if again else answer

    patch.setattr(SquashedActor, "act", broken)


@mutant("policy.carry", "recurrent-ppo")
def hidden_and_cell_states_begin_as_one_tensor(patch: Patch) -> None:
    for kind in vars(recurrent).values():
        initial = isinstance(kind, type) and vars(kind).get("initial")
        if initial:
            patch.setattr(kind, "initial", lambda self, batch, _initial=initial: _first_again(_initial(self, batch)))


def _first_again(state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(state[0] for _ in state)
