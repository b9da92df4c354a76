"""Bugs in what updates read from their batches, and in which parameters they train."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlsdk.math.surrogate import gae
from rlsdk.records import Observation, Rollout, Transitions
from rlsdk.updates import (
    FlatOptimizer,
    QLearning,
    SoftActorCritic,
    TargetNetwork,
    clipped_policy,
    minibatches,
    q_learning,
)
from tests.mutants.catalog import Patch, mutant


def _given(patch: Patch, kind: Any, change: Any, method: str = "update") -> None:
    """Make a method get the batch `change(batch)`."""
    original = getattr(kind, method)
    patch.setattr(kind, method, lambda self, batch, *rest, **named: original(self, change(batch), *rest, **named))


@mutant("batch.next-observation-read", "qrdqn")
def the_target_is_of_the_same_observation(patch: Patch) -> None:
    def change(batch: Transitions) -> Transitions:
        return replace(batch, next_observation=replace(batch.next_observation, features=batch.observation.features))

    _given(patch, QLearning, change, "_target")


@mutant("batch.discount-read", "qrdqn", alone=True)
def small_discounts_are_doubled(patch: Patch) -> None:
    def change(batch: Transitions) -> Transitions:
        small = batch.discount < 0.5
        return replace(batch, discount=torch.where(small, 2.0 * batch.discount, batch.discount))

    _given(patch, QLearning, change, "_target")


@mutant("batch.discount-read", "tqc")
def gamma_is_a_constant(patch: Patch) -> None:
    from rlsdk_tqc import algorithm

    target = algorithm.TruncatedQuantiles.target

    def broken(self: Any, values: Any, log_prob: Any, alpha: Any, batch: Transitions) -> Any:
        return target(self, values, log_prob, alpha, replace(batch, discount=0.99 * (batch.discount > 0)))

    patch.setattr(algorithm.TruncatedQuantiles, "target", broken)


@mutant("batch.ends-have-no-next", alone=True)
def the_entropy_is_outside_the_discount(patch: Patch) -> None:
    from rlsdk_tqc import algorithm

    target = algorithm.truncated_target

    def broken(atoms: Any, log_prob: Any, reward: Any, discount: Any, alpha: Any, *, keep: int) -> Any:
        zero = torch.zeros_like(alpha)
        return target(atoms, log_prob, reward - alpha * log_prob, discount, zero, keep=keep)

    patch.setattr(algorithm, "truncated_target", broken)


@mutant("batch.ends-have-no-next", "qrdqn")
def terminations_bootstrap(patch: Patch) -> None:
    _given(patch, QLearning, lambda batch: replace(batch, discount=batch.discount.clamp(min=0.5)), "_target")


@mutant("batch.discounts-mark-ends", "v-trace")
def the_newest_steps_never_end(patch: Patch) -> None:
    from acme_vtrace import algorithm

    sequences = algorithm.as_sequences

    def broken(rollout: Any, gamma: float) -> Any:
        batch = sequences(rollout, gamma)
        return replace(batch, discount=torch.full_like(batch.discount, gamma))

    patch.setattr(algorithm, "as_sequences", broken)


@mutant("rollout.last-carry-read", "recurrent-ppo", alone=True)
def the_value_after_a_rollout_is_of_its_first_memory(patch: Patch) -> None:
    values = minibatches._next_values
    patch.setattr(
        minibatches,
        "_next_values",
        lambda rollout, *rest: values(replace(rollout, last_carry=rollout.initial_carry), *rest),
    )


@mutant("training.targets-follow", "tqc")
def targets_move_once(patch: Patch) -> None:
    update = TargetNetwork.update
    moved = set[int]()

    def broken(self: Any, *rest: Any) -> None:
        if id(self) not in moved:
            moved.add(id(self))
            update(self, *rest)

    patch.setattr(TargetNetwork, "update", broken)


@mutant("batch.next-masks-read", "qrdqn", alone=True)
def forbidden_next_actions_are_valued(patch: Patch) -> None:
    target = q_learning.greedy_target

    def broken(*given: Any, mask: Any, selector: Any) -> Any:
        return target(*given, mask=None, selector=selector)

    patch.setattr(q_learning, "greedy_target", broken)


@mutant("batch.weights", "qrdqn", alone=True)
def weights_are_ignored(patch: Patch) -> None:
    from rlsdk_qrdqn import algorithm

    loss = algorithm.quantile_huber
    patch.setattr(
        algorithm,
        "quantile_huber",
        lambda values, target, *, weight, **named: loss(values, target, weight=None, **named),
    )


@mutant("batch.weights")
def weights_are_those_of_other_rows(patch: Patch) -> None:
    def change(batch: Transitions) -> Transitions:
        return batch if batch.weight is None else replace(batch, weight=batch.weight.flip(0))

    _given(patch, SoftActorCritic, change)


@mutant("batch.td-error", alone=True)
def errors_are_weighed(patch: Patch) -> None:
    update = SoftActorCritic.update

    def broken(self: Any, batch: Transitions, *, progress: float) -> Any:
        metrics = update(self, batch, progress=progress)
        if self.td_error is not None and batch.weight is not None:
            self.trained.td_error = self.td_error * batch.weight
        return metrics

    patch.setattr(SoftActorCritic, "update", broken)


@mutant("batch.td-error-of-its-row", "qrdqn", alone=True)
def errors_are_in_another_order(patch: Patch) -> None:
    error = q_learning.td_error
    patch.setattr(q_learning, "td_error", lambda values, target: error(values, target).flip(0))


@mutant("batch.td-error-of-its-row")
def one_error_for_all_rows(patch: Patch) -> None:
    from rlsdk.updates import continuous

    error = continuous.td_error

    def broken(values: Any, target: Any) -> Any:
        errors = error(values, target)
        return errors.mean().expand_as(errors)

    patch.setattr(continuous, "td_error", broken)


@mutant("batch.padding", "v-trace")
def padding_is_learned(patch: Patch) -> None:
    from acme_vtrace.algorithm import VTrace

    _given(patch, VTrace, lambda batch: replace(batch, loss_mask=batch.loss_mask | ~batch.steps.valid))


@mutant("batch.padding", "v-trace", alone=True)
def traces_run_into_padding(patch: Patch) -> None:
    from acme_vtrace.algorithm import VTrace

    def change(batch: Any) -> Any:
        return replace(batch, steps=replace(batch.steps, valid=torch.ones_like(batch.steps.valid)))

    _given(patch, VTrace, change)


@mutant("batch.loss-mask", "v-trace", alone=True)
def burn_in_is_learned(patch: Patch) -> None:
    from acme_vtrace.algorithm import VTrace

    _given(patch, VTrace, lambda batch: replace(batch, loss_mask=batch.steps.valid))


@mutant("batch.repeatable", "cloning")
def the_same_batch_is_skipped_once(patch: Patch) -> None:
    from acme_cloning.algorithm import Cloning

    update, last = Cloning.update, list[Any]()

    def broken(self: Any, batch: Transitions, *, progress: float) -> Any:
        if last and torch.equal(last.pop(), batch.reward):
            return {"train/loss": torch.zeros(())}
        last[:] = [batch.reward.clone()]
        return update(self, batch, progress=progress)

    patch.setattr(Cloning, "update", broken)


@mutant("batch.repeatable", "reinforce")
def gradients_add_up(patch: Patch) -> None:
    patch.setattr(FlatOptimizer, "zero_grad", lambda self: None)


@mutant("batch.rows-permuted", "dyna")
def the_model_learns_rewards_of_other_rows(patch: Patch) -> None:
    from acme_dyna.model import WorldModel

    _given(patch, WorldModel, lambda moves: replace(moves, reward=moves.reward.roll(1)), "loss")


@mutant("batch.rows-permuted", "cloning")
def actions_are_those_of_other_rows(patch: Patch) -> None:
    from acme_cloning.algorithm import Cloning

    _given(patch, Cloning, lambda batch: replace(batch, action=batch.action.roll(1, 0)))


@mutant("batch.rows-permuted", "qrdqn")
def rewards_are_those_of_other_rows(patch: Patch) -> None:
    _given(patch, QLearning, lambda batch: replace(batch, reward=batch.reward.roll(1)), "_target")


def _next_values(patch: Patch, change: Any) -> None:
    original = minibatches._next_values
    patch.setattr(minibatches, "_next_values", lambda rollout, *rest: original(change(rollout), *rest))


@mutant("rollout.time-limits-bootstrap", "maskable-ppo")
def truncated_rows_read_the_first_observation_of_the_next_episode(patch: Patch) -> None:
    _next_values(patch, lambda rollout: replace(rollout, final_observations=None))


@mutant("rollout.time-limits-bootstrap", "trpo")
def truncated_is_taken_for_terminated(patch: Patch) -> None:
    _with_steps(patch, lambda steps: replace(steps, terminated=steps.terminated | steps.truncated))


@mutant("rollout.last-observation-read", "maskable-ppo", alone=True)
def the_end_of_the_rollout_has_the_value_of_its_last_row(patch: Patch) -> None:
    def change(rollout: Rollout[Any, Any]) -> Rollout[Any, Any]:
        last: Observation = minibatches.tree.map_tensors(lambda leaf: leaf[-1], rollout.steps.observation)
        return replace(rollout, last_observation=last)

    _next_values(patch, change)


def _with_steps(patch: Patch, change: Any) -> None:
    """Make `policy_batch` read the steps `change(steps)`."""
    from rlsdk_trpo import algorithm

    for module in (clipped_policy, algorithm):
        original = module.policy_batch

        def broken(rollout: Any, *rest: Any, _original: Any = original, **named: Any) -> Any:
            return _original(replace(rollout, steps=change(rollout.steps)), *rest, **named)

        patch.setattr(module, "policy_batch", broken)


@mutant("rollout.terminations-are-no-limits", "trpo")
def terminations_of_several_environments_are_ignored(patch: Patch) -> None:
    def change(steps: Any) -> Any:
        if steps.reward.shape[1] == 1:
            return steps
        ended = steps.terminated | steps.truncated
        return replace(steps, terminated=torch.zeros_like(ended), truncated=ended)

    _with_steps(patch, change)


@mutant("rollout.fillers", "maskable-ppo", alone=True)
def fillers_are_learned(patch: Patch) -> None:
    original = clipped_policy.policy_batch
    patch.setattr(
        clipped_policy, "policy_batch", lambda *given, **named: replace(original(*given, **named), weight=None)
    )


@mutant("rollout.fillers", "rnd")
def fillers_are_novel(patch: Patch) -> None:
    from acme_rnd.algorithm import RandomNetworkDistillation

    rows = RandomNetworkDistillation._rows

    def broken(self: Any, rollout: Any) -> Any:
        found, bonus = rows(self, rollout)
        return replace(found, valid=torch.ones_like(found.valid)), bonus

    patch.setattr(RandomNetworkDistillation, "_rows", broken)


@mutant("rollout.episodes-permuted", "maskable-ppo")
def advantages_of_several_environments_run_on_over_episodes(patch: Patch) -> None:
    advantages = minibatches.advantages

    def broken(steps: Any, value: Any, following: Any, gamma: float, lam: float) -> Any:
        found = advantages(steps, value, following, gamma, lam)
        if value.shape[1] == 1:
            return found
        discount = gamma * (~steps.terminated).float()
        advantage = gae(steps.reward, value, following, discount, torch.full_like(discount, gamma * lam))
        return advantage.T.flatten(), (advantage + value).T.flatten(), found[2]

    patch.setattr(minibatches, "advantages", broken)


@mutant("rollout.episodes-permuted", "reinforce")
def returns_run_on_over_episodes(patch: Patch) -> None:
    from acme_reinforce import algorithm

    returns = algorithm.returns_to_go
    last = slice(-1, None)

    def broken(reward: Any, ended: Any, gamma: float) -> Any:
        only = torch.zeros_like(ended)
        only[last] = ended[last]
        return returns(reward, only, gamma)

    patch.setattr(algorithm, "returns_to_go", broken)


@mutant("rollout.episodes-permuted", "trpo")
def actions_are_flattened_in_another_order(patch: Patch) -> None:
    from rlsdk_trpo import algorithm

    original = algorithm.policy_batch

    def broken(rollout: Any, *rest: Any, **named: Any) -> Any:
        rows = original(rollout, *rest, **named)
        return replace(rows, action=rollout.steps.action.flatten(0, 1))

    patch.setattr(algorithm, "policy_batch", broken)


def _without_some(patch: Patch, module: Any, chosen: Any) -> None:
    """Make optimizers train only `chosen(parameters)` of the parameters of a module."""
    original = module.FlatOptimizer

    def broken(parameters: Any, *rest: Any) -> Any:
        every = list(parameters.parameters()) if isinstance(parameters, torch.nn.Module) else list(parameters)
        return original(chosen(every), *rest)

    patch.setattr(module, "FlatOptimizer", broken)


@mutant("training.parameters-move", "dyna", alone=True)
def the_model_has_an_untrained_layer(patch: Patch) -> None:
    from acme_dyna import algorithm

    _without_some(patch, algorithm, lambda parameters: parameters[2:])


@mutant("training.parameters-move", "tqc")
def the_second_critic_is_not_trained(patch: Patch) -> None:
    from rlsdk_tqc.algorithm import TruncatedQuantiles

    loss = TruncatedQuantiles.loss

    def broken(self: Any, values: Any, target: Any, *, weight: Any) -> Any:
        found, grad = loss(self, values, target, weight=weight)
        grad[1:] = 0.0
        return found, grad

    patch.setattr(TruncatedQuantiles, "loss", broken)


@mutant("training.parameters-move", "v-trace")
def the_critic_is_not_in_the_optimizer(patch: Patch) -> None:
    from acme_vtrace import algorithm

    _without_some(patch, algorithm, lambda each: each[: len(each) // 2])


@mutant("training.optimizers-hold-networks", "cloning", alone=True)
def an_optimizer_has_a_tensor_that_nothing_uses(patch: Patch) -> None:
    from acme_cloning import algorithm

    _without_some(patch, algorithm, lambda parameters: [*parameters, torch.nn.Parameter(torch.zeros(3))])


@mutant("training.optimizers-remember", "v-trace", alone=True)
def moments_begin_again_with_every_update(patch: Patch) -> None:
    from acme_vtrace.algorithm import VTrace

    update = VTrace.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        self.optimizer.optimizer.state.clear()
        return update(self, batch, progress=progress)

    patch.setattr(VTrace, "update", broken)


@mutant("training.targets-follow", "tqc")
def the_target_is_never_moved(patch: Patch) -> None:
    patch.setattr(TargetNetwork, "update", lambda self, tau: None)


@mutant("training.targets-follow", "qrdqn")
def the_target_follows_itself(patch: Patch) -> None:
    original = TargetNetwork._pair

    def broken(self: Any) -> None:
        original(self)
        self._pairs = [(mine, mine) for mine, _ in self._pairs]

    patch.setattr(TargetNetwork, "_pair", broken)


@mutant("training.targets-lag", "tqc")
def the_target_is_the_critic(patch: Patch) -> None:
    update = SoftActorCritic.update

    def broken(self: Any, batch: Transitions, *, progress: float) -> Any:
        metrics = update(self, batch, progress=progress)
        self.trained.target.update(1.0)
        return metrics

    patch.setattr(SoftActorCritic, "update", broken)
