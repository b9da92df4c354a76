"""Wrong signs and targets that only a training reveals: the classic mistakes of every family of algorithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlsdk.networks import (
    ActorCritic,
    ContinuousCritics,
    DiscreteValuePolicy,
    FlattenEncoder,
    SquashedActor,
    actor_critic,
)
from rlsdk.networks.action_heads import DiscreteHead
from rlsdk.records import Rollout, Transitions
from rlsdk.tree import map_tensors
from rlsdk.updates import ClippedPolicy, QLearning, SoftActorCritic, clipped_policy, minibatches
from rlsdk.updates.continuous import EntropyCoefficient
from rlsdk_ars import algorithm as ars
from rlsdk_tqc import algorithm as tqc
from rlsdk_trpo import algorithm as trpo
from tests.mutants.catalog import Patch, mutant


def negated(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **keywords: -function(*arguments, **keywords)


def learns_from(patch: Patch, kind: Any, changed: Callable[[Any], Any]) -> None:
    """Make `update` and `update_several` get the batch `changed(batch)`."""
    for name in ("update", "update_several"):
        if hasattr(kind, name):
            _changes_first(patch, kind, name, changed)


def _changes_first(patch: Patch, kind: Any, name: str, changed: Callable[[Any], Any]) -> None:
    method = getattr(kind, name)
    patch.setattr(kind, name, lambda self, batch, *rest, **keywords: method(self, changed(batch), *rest, **keywords))


def of_steps(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that replaces fields of a rollout's steps: `name=change` sets the field to `change(steps)`."""

    def changed(batch: Rollout[Any, Any]) -> Rollout[Any, Any]:
        new = {name: change(batch.steps) for name, change in changes.items()}
        return replace(batch, steps=replace(batch.steps, **new))

    return changed


def with_loss(patch: Patch, broken: Callable[..., Any]) -> None:
    """Make `broken(loss, rows, evaluation, terms)` the loss of clipped policies."""
    loss_of = clipped_policy.policy_loss_of

    def changed(network: ActorCritic) -> Any:
        return partial(broken, loss_of(network))

    patch.setattr(clipped_policy, "policy_loss_of", changed)


def with_gradient(patch: Patch, place: int, change: Callable[[Tensor], Tensor]) -> None:
    """Change one of the gradients with respect to log-probabilities (`place` 0), entropies (1) and values (2)."""

    def broken(loss: Any, *arguments: Any) -> Any:
        seen, grads = loss(*arguments)
        return seen, tuple(change(g) if i == place and g is not None else g for i, g in enumerate(grads))

    with_loss(patch, broken)


def later(values: Tensor) -> Tensor:
    """The values of the next rows."""
    return values.roll(-1, 0)


# --- bugs that only one clause finds ---------------------------------------------------------------------------------


@mutant("learns.bandit", "qrdqn")
def the_last_of_five_actions_is_never_tried(patch: Patch) -> None:
    decode = DiscreteValuePolicy.to_environment
    patch.setattr(DiscreteValuePolicy, "to_environment", lambda self, action: decode(self, action.clamp(max=3)))


@mutant("learns.sign-of-observation", "trpo", alone=True)
def the_sign_of_observations_is_lost(patch: Patch) -> None:
    forward = FlattenEncoder.forward
    patch.setattr(FlattenEncoder, "forward", lambda self, features: forward(self, features).abs())
    patch.setattr(actor_critic, "is_identity", lambda encoder: False)  # kernels call the encoder


@mutant("learns.time-limit", "maskable-ppo", alone=True)
def advantages_take_time_limits_for_terminations(patch: Patch) -> None:
    batch = clipped_policy.policy_batch
    ended = of_steps(terminated=lambda steps: steps.terminated | steps.truncated)

    def broken(rollout: Any, *rest: Any, **settings: Any) -> Any:
        wrong = batch(ended(rollout), *rest, **settings)
        return replace(batch(rollout, *rest, **settings), advantage=wrong.advantage)

    patch.setattr(clipped_policy, "policy_batch", broken)


@mutant("learns.known-values", "trpo", alone=True)
def targets_of_values_see_no_rewards_above_1(patch: Patch) -> None:
    targets_see(patch, lambda steps: steps.reward.clamp(max=1.0))


@mutant("learns.scaled-rewards", "trpo", alone=True)
def targets_of_values_see_no_rewards_below_minus_1(patch: Patch) -> None:
    targets_see(patch, lambda steps: steps.reward.clamp(min=-1.0))


def targets_see(patch: Patch, paid: Callable[[Any], Tensor]) -> None:
    """Compute the targets of values, but not the advantages, with the rewards `paid(steps)`."""
    batch = trpo.policy_batch

    def broken(rollout: Any, *rest: Any, **settings: Any) -> Any:
        seen = of_steps(reward=paid)(rollout)
        return replace(batch(rollout, *rest, **settings), target=batch(seen, *rest, **settings).target)

    patch.setattr(trpo, "policy_batch", broken)


@mutant("learns.entropy-later", "tqc", alone=True)
def later_entropy_is_punished(patch: Patch) -> None:
    target = tqc.truncated_target
    patch.setattr(
        tqc, "truncated_target", lambda atoms, log_prob, *rest, **named: target(atoms, -log_prob, *rest, **named)
    )


@mutant("batch.normalized", "v-trace")
def replayed_sequences_are_not_normalized(patch: Patch) -> None:
    from rlsdk.preprocessing import preprocessing

    patch.setattr(preprocessing, "normalized_batch", lambda normalizer, batch: batch)


# --- clipped policy -------------------------------------------------------------------------------------------------


@mutant("learns.bandit", "maskable-ppo")
def the_policy_descends(patch: Patch) -> None:
    with_gradient(patch, 0, torch.neg)


@mutant("learns.sign-of-observation", "maskable-ppo")
def advantages_are_those_of_the_next_step(patch: Patch) -> None:
    advantages = minibatches.advantages

    def broken(steps: Any, value: Any, *arguments: Any) -> Any:
        found, _, whole = advantages(steps, value, *arguments)
        next_one = later(found.unflatten(0, value.T.shape).T).T.flatten()
        return next_one, next_one + value.T.flatten(), whole

    patch.setattr(minibatches, "advantages", broken)


@mutant("learns.sign-of-observation", "maskable-ppo")
def rewards_are_those_of_the_next_step(patch: Patch) -> None:
    learns_from(patch, ClippedPolicy, of_steps(reward=lambda steps: later(steps.reward)))


@mutant("learns.bandit", "maskable-ppo")
def the_ratio_is_inverted(patch: Patch) -> None:
    def broken(loss: Any, rows: Any, now: Any, terms: Any) -> Any:
        swapped = replace(rows, log_prob=now.log_prob), replace(now, log_prob=rows.log_prob)
        (seen, (_, *others)), (log_prob, *_) = loss(rows, now, terms), loss(*swapped, terms)[1]
        return seen, (-log_prob, *others)

    with_loss(patch, broken)


@mutant("learns.sign-of-observation", "maskable-ppo")
def likelihoods_are_those_of_other_actions(patch: Patch) -> None:
    internal = DiscreteHead.from_environment
    patch.setattr(DiscreteHead, "from_environment", lambda self, action: internal(self, action).roll(1, 0))


@mutant("learns.entropy", "maskable-ppo", alone=True)
def entropy_is_punished(patch: Patch) -> None:
    with_gradient(patch, 1, torch.neg)


@mutant("learns.known-values", "maskable-ppo")
def values_flee_their_targets(patch: Patch) -> None:
    with_gradient(patch, 2, torch.neg)


@mutant("learns.known-values", "maskable-ppo")
def values_of_the_same_state_follow(patch: Patch) -> None:
    advantages = minibatches.advantages
    patch.setattr(minibatches, "advantages", lambda steps, value, _, *rest: advantages(steps, value, value, *rest))


@mutant("learns.known-values", "maskable-ppo")
def terminations_are_bootstrapped(patch: Patch) -> None:
    advantages = minibatches.advantages

    def broken(steps: Any, *arguments: Any) -> Any:
        ended = {"terminated": torch.zeros_like(steps.terminated), "truncated": steps.terminated | steps.truncated}
        return advantages(replace(steps, **ended), *arguments)

    patch.setattr(minibatches, "advantages", broken)


@mutant("learns.known-values", "maskable-ppo")
def time_limits_are_terminations(patch: Patch) -> None:
    learns_from(patch, ClippedPolicy, of_steps(terminated=lambda steps: steps.terminated | steps.truncated))


@mutant("learns.known-values", "maskable-ppo")
def nothing_is_discounted(patch: Patch) -> None:
    batch = clipped_policy.policy_batch
    patch.setattr(clipped_policy, "policy_batch", lambda *a, gamma, **k: batch(*a, gamma=1.0, **k))


@mutant("learns.known-values", "maskable-ppo")
def lambda_discounts_the_next_value(patch: Patch) -> None:
    advantages = minibatches.advantages
    patch.setattr(minibatches, "advantages", lambda s, v, n, gamma, lam: advantages(s, v, n, gamma * lam, 1.0))


@mutant("learns.two-state-chain", "maskable-ppo")
def advantages_do_not_look_ahead(patch: Patch) -> None:
    advantages = minibatches.advantages
    patch.setattr(minibatches, "advantages", lambda steps, value, after, *_: advantages(steps, value, after, 0.0, 0.0))


@mutant("learns.t-maze", "recurrent-ppo")
def memories_are_forgotten_at_every_step(patch: Patch) -> None:
    from rlsdk.networks import recurrent

    forgotten = recurrent.forgotten
    patch.setattr(recurrent, "forgotten", lambda state, is_first: forgotten(state, torch.ones_like(is_first)))


@mutant("learns.t-maze", "recurrent-ppo", alone=True)
def memories_fade_at_every_step(patch: Patch) -> None:
    from rlsdk.networks import recurrent

    forgotten, sequence = recurrent.forgotten, recurrent.RecurrentMemory.sequence

    def of_each_row(self: Any, features: Any, states: Any, is_first: Any, starts: Any) -> Any:
        return sequence(self, features, states, is_first, torch.ones_like(starts))

    patch.setattr(recurrent.RecurrentMemory, "sequence", of_each_row)
    patch.setattr(recurrent, "forgotten", lambda *given: tuple(0.01 * part for part in forgotten(*given)))


@mutant("learns.masked-choice", "qrdqn", alone=True)
def the_first_allowed_action_is_taken_where_the_best_is_forbidden(patch: Patch) -> None:
    act = DiscreteValuePolicy.act

    def broken(self: Any, observation: Any, *rest: Any, **keywords: Any) -> Any:
        mask = observation.action_mask
        if mask is None or len(self.sizes) > 1 or self.sizes[0] > 3:
            return act(self, observation, *rest, **keywords)
        free = act(self, replace(observation, action_mask=None), *rest, **keywords)
        allowed = mask.gather(1, free.action[:, None]).squeeze(1)
        return replace(free, action=torch.where(allowed, free.action, mask.float().argmax(1)))

    patch.setattr(DiscreteValuePolicy, "act", broken)


# --- trust region ---------------------------------------------------------------------------------------------------


@mutant("learns.bandit", "trpo")
def the_natural_gradient_descends(patch: Patch) -> None:
    for name in ("surrogate", "surrogate_grad"):
        patch.setattr(trpo, name, negated(getattr(trpo, name)))


@mutant("learns.known-values", "trpo")
def values_of_trpo_are_of_terminated_time_limits(patch: Patch) -> None:
    learns_from(patch, trpo.TrustRegionPolicy, of_steps(terminated=lambda steps: steps.terminated | steps.truncated))


@mutant("learns.sign-of-observation", "trpo")
def rewards_of_trpo_are_those_of_the_step_after(patch: Patch) -> None:
    learns_from(patch, trpo.TrustRegionPolicy, of_steps(reward=lambda steps: steps.reward.roll(-1, 0)))


# --- values of discrete actions -------------------------------------------------------------------------------------


def of_rows(**changes: Callable[[Transitions], Any]) -> Callable[[Transitions], Transitions]:
    return lambda batch: replace(batch, **{name: change(batch) for name, change in changes.items()})


def every_discount(batch: Transitions) -> Tensor:
    return torch.full_like(batch.discount, float(batch.discount.max()))


def no_discount(batch: Transitions) -> Tensor:
    return (batch.discount > 0.0).float()


def rolled(values: Any) -> Any:
    return map_tensors(lambda leaf: leaf.roll(1, 0), values)


ROWS: dict[str, Callable[[Transitions], Transitions]] = {
    "terminations are ignored": of_rows(discount=every_discount),
    "nothing is discounted": of_rows(discount=no_discount),
    "no next value": of_rows(discount=lambda batch: batch.discount * 0.0),
    "s for s'": of_rows(next_observation=lambda batch: batch.observation),
    "s' for s": of_rows(observation=lambda batch: batch.next_observation),
    "reward of another row": of_rows(reward=lambda batch: rolled(batch.reward)),
    "action of another row": of_rows(action=lambda batch: rolled(batch.action)),
    "next observation of another row": of_rows(next_observation=lambda batch: rolled(batch.next_observation)),
    "discount of another row": of_rows(discount=lambda batch: rolled(batch.discount)),
    "rewards have the wrong sign": of_rows(reward=lambda batch: -batch.reward),
}


@mutant("learns.known-values", "qrdqn")
def terminations_are_ignored(patch: Patch) -> None:
    learns_from(patch, QLearning, ROWS["terminations are ignored"])


@mutant("learns.known-values", "qrdqn")
def targets_of_q_are_not_discounted(patch: Patch) -> None:
    learns_from(patch, QLearning, ROWS["nothing is discounted"])


@mutant("learns.two-state-chain", "qrdqn")
def the_state_itself_follows(patch: Patch) -> None:
    learns_from(patch, QLearning, ROWS["s for s'"])


@mutant("learns.sign-of-observation", "qrdqn")
def values_are_of_another_action(patch: Patch) -> None:
    learns_from(patch, QLearning, ROWS["action of another row"])


@mutant("learns.bandit", "qrdqn")
def the_least_value_is_taken(patch: Patch) -> None:
    from rlsdk.networks import discrete_values

    greedy = discrete_values.greedy_action
    patch.setattr(discrete_values, "greedy_action", lambda values, *rest: greedy(-values, *rest))


@mutant("learns.known-values", "qrdqn")
def time_limits_of_q_are_terminations(patch: Patch) -> None:
    from rlsdk.buffers.replay import ReplayBuffer

    extend = ReplayBuffer.extend
    ended = of_steps(terminated=lambda steps: steps.terminated | steps.truncated)
    patch.setattr(ReplayBuffer, "extend", lambda self, item: extend(self, ended(item)))


# --- soft actor-critic ----------------------------------------------------------------------------------------------


@mutant("learns.two-state-chain", "tqc")
def terminations_of_critics_are_ignored(patch: Patch) -> None:
    learns_from(patch, SoftActorCritic, ROWS["terminations are ignored"])


@mutant("learns.known-values", "tqc")
def targets_of_critics_are_not_discounted(patch: Patch) -> None:
    learns_from(patch, SoftActorCritic, ROWS["nothing is discounted"])


@mutant("learns.sign-of-observation", "tqc")
def critics_learn_rewards_of_other_rows(patch: Patch) -> None:
    learns_from(patch, SoftActorCritic, ROWS["reward of another row"])


@mutant("learns.two-state-chain", "tqc")
def critics_see_the_state_itself(patch: Patch) -> None:
    learns_from(patch, SoftActorCritic, ROWS["s for s'"])


@mutant("learns.bandit", "tqc")
def the_actor_climbs_down(patch: Patch) -> None:
    climbs = ContinuousCritics.action_gradient

    def broken(self: Any, *arguments: Any) -> Any:
        value, grad = climbs(self, *arguments)
        return value, -grad

    patch.setattr(ContinuousCritics, "action_gradient", broken)


@mutant("learns.entropy", "tqc")
def the_actor_minimizes_its_entropy(patch: Patch) -> None:
    evaluate = SquashedActor.evaluate

    def broken(self: Any, *arguments: Any) -> Any:
        result, vjp = evaluate(self, *arguments)
        return result, lambda action, log_prob: vjp(action, -log_prob)

    patch.setattr(SquashedActor, "evaluate", broken)


@mutant("learns.entropy-coefficient", "tqc")
def the_learned_coefficient_goes_the_wrong_way(patch: Patch) -> None:
    update = EntropyCoefficient.update

    def broken(self: Any, log_prob: Tensor, rate: float) -> Any:
        return update(self, -log_prob - 2.0 * self.target_entropy, rate)

    patch.setattr(EntropyCoefficient, "update", broken)


@mutant("learns.entropy-coefficient", "tqc", alone=True)
def the_learned_coefficient_only_shrinks(patch: Patch) -> None:
    update = EntropyCoefficient.update

    def broken(self: Any, log_prob: Tensor, rate: float) -> Any:
        return update(self, log_prob.clamp(max=-self.target_entropy), rate)

    patch.setattr(EntropyCoefficient, "update", broken)


# --- populations ----------------------------------------------------------------------------------------------------


@mutant("learns.bandit", "ars")
def the_search_goes_back(patch: Patch) -> None:
    search = ars.search_step

    def broken(*arguments: Any) -> Any:
        direction, deviation = search(*arguments)
        return -direction, deviation

    patch.setattr(ars, "search_step", broken)
