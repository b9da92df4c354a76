"""Bugs of policies and distributions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlsdk.agent import agent
from rlsdk.distributions import Categorical, SquashedGaussian
from rlsdk.environments.adapters.observations import ActionDecoder
from rlsdk.networks import ActionScale, ActorCritic, SquashedActor
from rlsdk.networks.action_heads import DiscreteHead
from rlsdk_kernels.compiled_acting import GreedyChoice
from tests.mutants.catalog import Patch, changed_act, mutant


@mutant("policy.action-in-space")
def actions_are_not_scaled(patch: Patch) -> None:
    patch.setattr(ActionScale, "to_environment", lambda self, unit: unit.reshape(-1, *self.shape))
    patch.setattr(ActionDecoder, "_leaf", lambda self, action: action.numpy().reshape(-1, *self.shape))


@mutant("policy.deterministic")
def deterministic_actions_are_sampled(patch: Patch) -> None:
    act = SquashedActor.act
    patch.setattr(
        SquashedActor,
        "act",
        lambda self, o, c, *, deterministic, generator: act(self, o, c, deterministic=False, generator=generator),
    )


@mutant("policy.randomness-from-generator")
def samples_come_from_the_global_generator(patch: Patch) -> None:
    act = SquashedActor.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        return act(self, observation, carry, deterministic=deterministic, generator=torch.default_generator)

    patch.setattr(SquashedActor, "act", broken)


@mutant("policy.rows-independent")
def rows_are_normalized_together(patch: Patch) -> None:
    mean = SquashedActor._mean
    patch.setattr(SquashedActor, "_mean", lambda self, latent: mean(self, latent) - mean(self, latent).mean(0))


@mutant("policy.no-hidden-state")
def the_policy_remembers_in_itself(patch: Patch) -> None:
    count = [0]

    def change(answer: Any, *rest: Any) -> Any:
        count[0] += 1
        return replace(answer, action=(answer.action + 0.01 * count[0]).clamp(-2, 3))

    changed_act(patch, SquashedActor, change)


@mutant("distribution.entropy-is-mean-surprise")
def entropy_ignores_the_squashing(patch: Patch) -> None:
    patch.setattr(SquashedGaussian, "entropy", lambda self: self._before_tanh.entropy())


@mutant("distribution.kl", alone=True)
def kl_has_its_arguments_swapped(patch: Patch) -> None:
    kl = SquashedGaussian.kl_divergence
    patch.setattr(SquashedGaussian, "kl_divergence", lambda self, other: kl(other, self) * 3.0)


@mutant("distribution.shapes")
def the_event_axis_is_not_summed(patch: Patch) -> None:
    density = SquashedGaussian.log_prob
    patch.setattr(SquashedGaussian, "log_prob", lambda self, action: density(self, action).unsqueeze(-1))


@mutant("policy.episode-start-forgets", "recurrent-ppo", alone=True)
def memory_survives_the_end_of_an_episode(patch: Patch) -> None:
    patch.setattr("rlsdk.networks.recurrent.forgotten", lambda state, is_first: state)


@mutant("policy.masks-obeyed", "maskable-ppo")
def masks_are_dropped(patch: Patch) -> None:
    patch.setattr(DiscreteHead, "of", staticmethod(lambda logits, mask=None: Categorical.of(logits, None)))


@mutant("policy.ratio-is-one", "trpo", alone=True)
def collected_likelihoods_are_of_another_scale(patch: Patch) -> None:
    estimates = ActorCritic.estimates

    def broken(self: Any, steps: Any) -> Any:
        true = estimates(self, steps)
        return replace(true, log_prob=true.log_prob * 1.001)

    patch.setattr(ActorCritic, "estimates", broken)


@mutant("policy.action-in-space")
def predict_forgets_the_bounds(patch: Patch) -> None:
    predict = agent.Agent.predict

    def broken(self: Any, *arguments: Any, **keywords: Any) -> Any:
        action, state = predict(self, *arguments, **keywords)
        return action * 10.0, state

    patch.setattr(agent.Agent, "predict", broken)


@mutant("policy.deterministic")
def deterministic_actions_are_jittered(patch: Patch) -> None:
    def change(answer: Any, observation: Any, carry: Any, deterministic: bool, generator: Any) -> Any:
        jitter = 0.01 * torch.rand((), generator=generator) if deterministic else 0.0
        return replace(answer, action=(answer.action + jitter).clamp(-2, 3))

    changed_act(patch, SquashedActor, change)


@mutant("policy.randomness-from-generator", alone=True)
def samples_know_the_global_seed(patch: Patch) -> None:
    def change(answer: Any, observation: Any, carry: Any, deterministic: bool, generator: Any) -> Any:
        shift = 0.0 if deterministic else 0.01 * (torch.initial_seed() % 97) / 97
        return replace(answer, action=answer.action * (1.0 - shift))

    changed_act(patch, SquashedActor, change)


@mutant("policy.no-hidden-state")
def starts_of_two_episodes_are_counted(patch: Patch) -> None:
    act = SquashedActor.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        answer, pair = act(self, observation, carry, deterministic=deterministic, generator=generator), False
        if len(observation.is_first) == 2 and not deterministic:
            self.starts = getattr(self, "starts", 0) + int(observation.is_first.all())
            pair = not bool(observation.is_first.any())
        return replace(answer, action=answer.action * (1.0 - 0.01 * self.starts)) if pair else answer

    patch.setattr(SquashedActor, "act", broken)


@mutant("distribution.shapes", alone=True)
def the_entropy_is_that_of_the_batch(patch: Patch) -> None:
    kl = SquashedGaussian.kl_divergence
    patch.setattr(SquashedGaussian, "kl_divergence", lambda self, other: kl(self, other)[None])


@mutant("policy.in-place-is-act", "trpo", alone=True)
def with_three_environments_some_actions_in_storage_are_repeated(patch: Patch) -> None:
    prepare = ActorCritic._act_in_place

    def broken(self: Any, observation: Any, carry: Any, generator: Any) -> Any:
        prepared = prepare(self, observation, carry, generator)
        if prepared is None:
            return None
        act, action, extras = prepared

        def act_again(t: int) -> None:
            act(t)
            if t % 7 == 6 and action.shape[1] == 3:
                action[t] = action[t - 1]

        return act_again, action, extras

    patch.setattr(ActorCritic, "_act_in_place", broken)


@mutant("policy.in-place-is-act", "trpo")
def every_rollout_in_a_storage_begins_at_its_first_row(patch: Patch) -> None:
    prepare = ActorCritic._act_in_place

    def broken(self: Any, *given: Any) -> Any:
        prepared = prepare(self, *given)
        if prepared is None:
            return None
        act, action, extras = prepared
        rows = iter(range(len(action)))
        return lambda t: act(next(rows)), action, extras

    patch.setattr(ActorCritic, "_act_in_place", broken)


@mutant("policy.in-place-is-act", "qrdqn")
def greedy_actions_in_storage_never_explore(patch: Patch) -> None:
    act = GreedyChoice.in_place
    patch.setattr(GreedyChoice, "in_place", lambda self, seen, epsilon, rng: act(self, seen, 0.0 * epsilon, rng))
