"""Small bugs, each of which only one clause finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlsdk import Agent
from rlsdk.buffers import replay
from rlsdk.networks import SquashedActor, recurrent
from rlsdk.records import Transitions
from rlsdk.tree import leaves, map_tensors
from rlsdk.updates import QLearning, SoftActorCritic, TargetNetwork
from tests.mutants.catalog import Patch, changed_act, mutant


@mutant("batch.discounts-mark-ends", "v-trace", alone=True)
def terminations_have_a_small_discount(patch: Patch) -> None:
    from acme_vtrace import algorithm

    sequences = algorithm.as_sequences

    def broken(rollout: Any, gamma: float) -> Any:
        batch = sequences(rollout, gamma)
        return replace(batch, discount=batch.discount.clamp(min=1e-3))

    patch.setattr(algorithm, "as_sequences", broken)


@mutant("batch.next-observation-read", "qrdqn", alone=True)
def rows_of_several_steps_read_where_they_began(patch: Patch) -> None:
    target = QLearning._target

    def broken(self: Any, batch: Transitions, *count: int) -> Any:
        several = batch.discount < 0.999 * self.config.gamma
        mine, following = leaves(batch.observation.features), iter(leaves(batch.next_observation.features))
        own = iter(mine)

        def mixed(leaf: Any) -> Any:
            rows = several.view(-1, *[1] * (leaf.dim() - 1))
            return torch.where(rows, next(own), next(following))

        features = map_tensors(mixed, batch.next_observation.features)
        return target(self, replace(batch, next_observation=replace(batch.next_observation, features=features)), *count)

    patch.setattr(QLearning, "_target", broken)


@mutant("batch.repeatable", "cloning", alone=True)
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


@mutant("batch.rows-permuted", "cloning", alone=True)
def the_last_row_is_left_out(patch: Patch) -> None:
    from acme_cloning.algorithm import Cloning

    update = Cloning.update

    def broken(self: Any, batch: Transitions, *, progress: float) -> Any:
        rest = map_tensors(lambda leaf: leaf[:-1] if len(leaf) > 1 else leaf, batch)
        return update(self, rest, progress=progress)

    patch.setattr(Cloning, "update", broken)


@mutant("buffer.samples-are-copies", alone=True)
def batches_share_a_constant_column(patch: Patch) -> None:
    at = replay.ReplayBuffer.at

    def broken(self: Any, index: Any) -> Any:
        batch = at(self, index)
        following = batch.next_observation
        kept = self.__dict__.setdefault("kept", {})
        starts = kept.setdefault(len(index), torch.zeros_like(following.is_first))
        return replace(batch, next_observation=replace(following, is_first=starts))

    patch.setattr(replay.ReplayBuffer, "at", broken)


@mutant("policy.deterministic", alone=True)
def deterministic_actions_are_jittered_a_little(patch: Patch) -> None:
    def change(answer: Any, observation: Any, carry: Any, deterministic: bool, generator: Any) -> Any:
        shrink = 1.0 - 1e-3 * torch.rand((), generator=generator) if deterministic else 1.0
        return replace(answer, action=answer.action * shrink)

    changed_act(patch, SquashedActor, change)


@mutant("policy.rows-independent", alone=True)
def rows_differ_from_their_mean(patch: Patch) -> None:
    def change(answer: Any, observation: Any, carry: Any, deterministic: bool, generator: Any) -> Any:
        mean = answer.action.mean(0, keepdim=True)
        return replace(answer, action=torch.lerp(answer.action, mean, 1e-3)) if deterministic else answer

    changed_act(patch, SquashedActor, change)


@mutant("policy.no-hidden-state", alone=True)
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


@mutant("policy.carry", "recurrent-ppo", alone=True)
def hidden_and_cell_states_begin_as_one_tensor(patch: Patch) -> None:
    for kind in vars(recurrent).values():
        initial = isinstance(kind, type) and vars(kind).get("initial")
        if initial:
            patch.setattr(kind, "initial", lambda self, batch, _initial=initial: _first_again(_initial(self, batch)))


def _first_again(state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(state[0] for _ in state)


def _alone(patch: Patch, change: Any) -> None:
    """Call `change(agent)` on agents that are loaded without an environment."""
    load = vars(Agent)["load"].__func__

    def broken(kind: Any, path: Any, env: Any = None, *arguments: Any, **named: Any) -> Any:
        loaded = load(kind, path, env, *arguments, **named)
        if env is None:
            change(loaded)
        return loaded

    patch.setattr(Agent, "load", classmethod(broken))


@mutant("agent.save-load-predict", alone=True)
def agents_loaded_alone_are_rounded(patch: Patch) -> None:
    def change(loaded: Any) -> None:
        if loaded.normalizer is None:
            for value in loaded.parts.policy.state_dict().values():
                value.mul_(1.0 + 1e-6)

    _alone(patch, change)


@mutant("agent.preprocessing-travels", alone=True)
def agents_loaded_alone_have_counted_one_more(patch: Patch) -> None:
    def change(loaded: Any) -> None:
        for moments in () if loaded.normalizer is None else loaded.normalizer.moments.values():
            moments.count += 1

    _alone(patch, change)


@mutant("algorithm.metrics", "cloning", alone=True)
def a_metric_has_no_group(patch: Patch) -> None:
    from acme_cloning.algorithm import Cloning

    update = Cloning.update

    def broken(self: Any, batch: Transitions, *, progress: float) -> Any:
        metrics = update(self, batch, progress=progress)
        return {**metrics, "loss": metrics["train/loss"]}

    patch.setattr(Cloning, "update", broken)


@mutant("algorithm.state-restored", "cloning", alone=True)
def a_number_is_stored_and_not_read(patch: Patch) -> None:
    from acme_cloning.algorithm import Cloning

    store = Cloning.state_dict
    patch.setattr(Cloning, "state_dict", lambda self: {**store(self), "temperature": 1.0})


@mutant("algorithm.update-learns", alone=True)
def nothing_is_learned_at_the_end(patch: Patch) -> None:
    update = SoftActorCritic.update

    def broken(self: Any, batch: Transitions, *, progress: float) -> Any:
        return update(self, batch, progress=progress) if progress > 0.0 else {}

    patch.setattr(SoftActorCritic, "update", broken)


@mutant("training.targets-follow", alone=True)
def a_bias_of_the_target_stays(patch: Patch) -> None:
    pair = TargetNetwork._pair

    def broken(self: Any) -> None:
        pair(self)
        del self._pairs[1]

    patch.setattr(TargetNetwork, "_pair", broken)


@mutant("training.targets-lag", alone=True)
def the_target_is_the_critic_where_tau_is_not_chosen(patch: Patch) -> None:
    update, default = SoftActorCritic.update, 0.005

    def broken(self: Any, batch: Transitions, *, progress: float) -> Any:
        metrics = update(self, batch, progress=progress)
        if self.config.tau == default:
            self.target.update(1.0)
        return metrics

    patch.setattr(SoftActorCritic, "update", broken)


def _of_short_rollouts(patch: Patch, change: Any) -> None:
    """Make `policy_batch` read `change(rollout)` if a rollout of several environments has at most 16 steps."""
    from rlsdk_trpo import algorithm

    original = algorithm.policy_batch

    def broken(rollout: Any, *rest: Any, **named: Any) -> Any:
        steps, environments = rollout.steps.reward.shape
        return original(change(rollout) if steps <= 16 and environments > 1 else rollout, *rest, **named)

    patch.setattr(algorithm, "policy_batch", broken)


@mutant("rollout.terminations-are-no-limits", "trpo", alone=True)
def terminations_in_short_rollouts_are_time_limits(patch: Patch) -> None:
    def change(rollout: Any) -> Any:
        steps = rollout.steps
        ended = steps.terminated | steps.truncated
        return replace(rollout, steps=replace(steps, terminated=torch.zeros_like(ended), truncated=ended))

    _of_short_rollouts(patch, change)


@mutant("rollout.time-limits-bootstrap", "trpo", alone=True)
def time_limits_have_the_value_of_the_step_before(patch: Patch) -> None:
    def change(rollout: Any) -> Any:
        finals = rollout.final_observations
        if finals is None:
            return rollout
        own = map_tensors(lambda leaf: leaf[finals.time, finals.env], rollout.steps.observation)
        return replace(rollout, final_observations=replace(finals, observation=own))

    _of_short_rollouts(patch, change)


@mutant("algorithm.several-equal-single", "dqn", alone=True)
def rewards_are_larger_in_updates_together(patch: Patch) -> None:
    target = QLearning._target
    patch.setattr(QLearning, "_target", lambda self, batch, count=1: target(self, batch, count) + 1e-3 * (count > 1))
