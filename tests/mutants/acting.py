"""Bugs of acting, replay memories and resuming, as authors of plugins make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from rlsdk.buffers import ReplayBuffer, SequenceReplay
from rlsdk.buffers.replay import PrioritizedReplay
from rlsdk.distributions import Categorical, MultiCategorical
from rlsdk.exploration import UniformWarmUp
from rlsdk.exploration.behavior import NoisyPolicy
from rlsdk.networks import ActorCritic, DiscreteValuePolicy, SquashedActor, recurrent
from rlsdk.networks.action_heads import epsilon_greedy
from rlsdk.records import Act
from rlsdk.tree import leaves, map_tensors
from rlsdk.updates import ClippedPolicy, QLearning, SoftActorCritic
from rlsdk_ars.algorithm import RandomSearch
from tests.mutants.catalog import Patch, changed_act, mutant


@mutant("resume.equals-uninterrupted", alone=True)
def the_schedule_counts_updates_by_itself(patch: Patch) -> None:
    update = SoftActorCritic.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return update(self, batch, progress=min(1.0, self.calls / 100))

    patch.setattr(SoftActorCritic, "update", broken)


@mutant("resume.equals-uninterrupted")
def the_count_of_updates_is_lost(patch: Patch) -> None:
    restore = SoftActorCritic.load_state_dict

    def broken(self: Any, state: Any) -> None:
        restore(self, state)
        self.trained.updates = 0

    patch.setattr(SoftActorCritic, "load_state_dict", broken)


@mutant("resume.equals-uninterrupted", "qrdqn")
def exploration_falls_with_calls_of_collected(patch: Patch) -> None:
    collected = QLearning.collected

    def broken(self: Any, env_steps: int, progress: float) -> None:
        self.seen = getattr(self, "seen", 0) + 1
        collected(self, env_steps, min(1.0, self.seen / 60))

    patch.setattr(QLearning, "collected", broken)


@mutant("resume.equals-uninterrupted", "ars")
def directions_have_a_generator_that_no_file_holds(patch: Patch) -> None:
    propose = RandomSearch.propose

    def broken(self: Any, *, progress: float) -> Any:
        self.own = getattr(self, "own", None) or torch.Generator().manual_seed(5)
        self.generator = self.own
        return propose(self, progress=progress)

    patch.setattr(RandomSearch, "propose", broken)


@mutant("resume.equals-uninterrupted", "trpo")
def every_other_rollout_is_learned_from(patch: Patch) -> None:
    from rlsdk_trpo.algorithm import TrustRegionPolicy

    update = TrustRegionPolicy.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        self.rollouts = getattr(self, "rollouts", 0) + 1
        if self.rollouts % 2:
            return update(self, batch, progress=progress)
        return {"train/skipped": torch.tensor(1.0)}

    patch.setattr(TrustRegionPolicy, "update", broken)


@mutant("resume.equals-uninterrupted", "maskable-ppo")
def minibatches_have_a_generator_that_no_file_holds(patch: Patch) -> None:
    update = ClippedPolicy.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        self.own = getattr(self, "own", None) or torch.Generator().manual_seed(5)
        self.generator = self.own
        return update(self, batch, progress=progress)

    patch.setattr(ClippedPolicy, "update", broken)


@mutant("resume.vectors", alone=True)
def the_noise_process_is_kept_in_the_policy(patch: Patch) -> None:
    act = NoisyPolicy.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        held = getattr(self, "held", None)
        carry = carry if held is None or held.shape != carry.noise.shape else replace(carry, noise=held)
        result = act(self, observation, carry, deterministic=deterministic, generator=generator)
        self.held = result.carry.noise
        return Act(result.action, replace(result.carry, noise=torch.zeros_like(self.held)), result.extras)

    patch.setattr(NoisyPolicy, "act", broken)


@mutant("resume.vectors", "recurrent-ppo")
def moments_of_returns_start_again(patch: Patch) -> None:
    from rlsdk.preprocessing.normalizer import RewardScale

    patch.setattr(RewardScale, "load_state_dict", lambda self, state: None)


# --- policies ----------------------------------------------------------------------------------------------------------


@mutant("policy.action-in-space", alone=True)
def the_policy_relies_on_clipping(patch: Patch) -> None:
    changed_act(patch, SquashedActor, lambda answer, *rest: replace(answer, action=answer.action * 1.5))


@mutant("policy.action-in-space")
def warm_up_draws_unit_actions(patch: Patch) -> None:
    def unit(space: Any, batch: int, generator: Any) -> Any:
        return torch.rand((batch, *space.shape), generator=generator) * 2 - 1

    patch.setattr("rlsdk.exploration.behavior.uniform_actions", unit)


@mutant("policy.action-in-space", "qrdqn")
def choices_are_counted_from_zero(patch: Patch) -> None:
    changed_act(
        patch,
        DiscreteValuePolicy,
        lambda answer, *rest: replace(answer, action=answer.action - answer.action.min().clamp(max=0)),
    )


@mutant("policy.samples-vary", alone=True)
def one_sample_serves_all_rows(patch: Patch) -> None:
    changed_act(
        patch, UniformWarmUp, lambda answer, *rest: replace(answer, action=answer.action[:1].expand_as(answer.action))
    )


@mutant("policy.samples-vary", "qrdqn")
def the_last_action_is_never_explored(patch: Patch) -> None:
    def random(greedy: Any, sizes: Any, epsilon: Any, mask: Any, generator: Any) -> Any:
        if mask is not None:
            return epsilon_greedy(greedy, sizes, epsilon, mask, generator)
        return epsilon_greedy(greedy, tuple(max(1, size - 1) for size in sizes), epsilon, mask, generator)

    patch.setattr("rlsdk.networks.discrete_values.epsilon_greedy", random)


@mutant("policy.samples-vary", "reinforce")
def the_mode_is_played_while_collecting(patch: Patch) -> None:
    patch.setattr(Categorical, "sample", lambda self, generator: self.mode())


@mutant("policy.log-prob-is-true", "v-trace", alone=True)
def the_log_probability_is_that_of_the_mode(patch: Patch) -> None:
    log_prob = Categorical.log_prob
    patch.setattr(Categorical, "log_prob", lambda self, action: log_prob(self, self.mode()))


@mutant("policy.log-prob-is-true", "recurrent-ppo")
def samples_are_of_a_flatter_distribution(patch: Patch) -> None:
    sample = MultiCategorical.sample
    patch.setattr(
        MultiCategorical,
        "sample",
        lambda self, generator: torch.where(
            torch.rand((), generator=generator) < 2.0, sample(self, generator), 0
        ).clamp(max=1),
    )


@mutant("policy.no-hidden-state")
def the_warm_up_counts_in_itself(patch: Patch) -> None:
    act = UniformWarmUp.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + len(observation.is_first)
        carry = replace(carry, taken=torch.tensor(self.calls))
        return act(self, observation, carry, deterministic=deterministic, generator=generator)

    patch.setattr(UniformWarmUp, "act", broken)


def _forget(patch: Patch, decide: Callable[[Any], Any]) -> None:
    """Make recurrent networks reset their memory where `decide(is_first)` is True."""
    forgotten = recurrent.forgotten
    patch.setattr(recurrent, "forgotten", lambda state, is_first: forgotten(state, decide(is_first)))


@mutant("policy.episode-start-forgets", "recurrent-ppo")
def one_start_forgets_all_rows(patch: Patch) -> None:
    _forget(patch, lambda is_first: is_first.any(-1, keepdim=True).expand_as(is_first))


@mutant("policy.episode-start-forgets", "recurrent-ppo")
def rows_are_forgotten_only_together(patch: Patch) -> None:
    _forget(patch, lambda is_first: is_first.all(-1, keepdim=True).expand_as(is_first))


@mutant("policy.episode-start-forgets", "recurrent-ppo")
def the_memory_is_empty_at_every_step(patch: Patch) -> None:
    _forget(patch, lambda is_first: torch.ones_like(is_first) if len(is_first) != 1 else is_first)


@mutant("policy.carry", "recurrent-ppo")
def the_carry_that_was_given_is_overwritten(patch: Patch) -> None:
    act = ActorCritic.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        given = map_tensors(torch.clone, carry)
        answer = act(self, observation, given, deterministic=deterministic, generator=generator)
        if len(observation.is_first) == 3:
            for old, new in zip(leaves(carry), leaves(answer.carry), strict=True):
                old.copy_(new)
        return answer

    patch.setattr(ActorCritic, "act", broken)


@mutant("policy.masks-obeyed", "qrdqn", alone=True)
def exploration_ignores_masks(patch: Patch) -> None:
    def random(greedy: Any, sizes: Any, epsilon: Any, mask: Any, generator: Any) -> Any:
        return epsilon_greedy(greedy, sizes, epsilon, None, generator)

    patch.setattr("rlsdk.networks.discrete_values.epsilon_greedy", random)


@mutant("policy.masks-obeyed", "qrdqn")
def the_greedy_action_ignores_masks(patch: Patch) -> None:
    from rlsdk.networks import discrete_values as module

    greedy = module.greedy_action
    patch.setattr(module, "greedy_action", lambda values, mask, sizes: greedy(values, None, sizes))


@mutant("policy.masks-obeyed", "reinforce")
def masks_with_one_action_left_are_ignored(patch: Patch) -> None:
    of = Categorical.of

    def broken(logits: Any, mask: Any = None) -> Any:
        if mask is not None:
            mask = mask | (mask.sum(-1, keepdim=True) == 1)
        return of(logits, mask)

    patch.setattr(Categorical, "of", broken)


# --- memories ----------------------------------------------------------------------------------------------------------


def _at(patch: Patch, change: Callable[..., Any]) -> None:
    """Make `ReplayBuffer.at` return `change(memory, batch, index)`."""
    at = ReplayBuffer.at
    patch.setattr(ReplayBuffer, "at", lambda self, index: change(self, at(self, index), index))


@mutant("buffer.rows-are-true")
def filler_rows_are_stored_as_steps(patch: Patch) -> None:
    extend = ReplayBuffer.extend

    def broken(self: Any, item: Any) -> None:
        extend(self, replace(item, steps=replace(item.steps, valid=torch.ones_like(item.steps.valid))))

    patch.setattr(ReplayBuffer, "extend", broken)


@mutant("buffer.rows-are-true", "qrdqn", alone=True)
def masks_of_next_observations_are_those_of_the_row(patch: Patch) -> None:
    def swap(self: Any, batch: Any, index: Any) -> Any:
        following = replace(batch.next_observation, action_mask=batch.observation.action_mask)
        return replace(batch, next_observation=following)

    _at(patch, swap)


@mutant("buffer.rows-are-true")
def rewards_are_those_of_the_next_row(patch: Patch) -> None:
    _at(patch, lambda self, batch, index: replace(batch, reward=batch.reward.roll(1)))


@mutant("buffer.rows-are-true")
def actions_are_those_of_the_first_environment(patch: Patch) -> None:
    def swap(self: Any, batch: Any, index: Any) -> Any:
        first = index // self.context.num_envs * self.context.num_envs
        return replace(batch, action=self.take("action", first))

    _at(patch, swap)


@mutant("buffer.rows-are-true", "qrdqn")
def several_steps_cross_the_end_of_an_episode(patch: Patch) -> None:
    from rlsdk.buffers.rows import Ring

    ahead = Ring.ahead

    def broken(self: Any, index: Any, n_steps: int, newest: int, columns: Any) -> Any:
        return ahead(replace(self, first=torch.zeros_like(self.first)), index, n_steps, newest, columns)

    patch.setattr(Ring, "ahead", broken)


@mutant("buffer.sequences-are-true", "v-trace", alone=True)
def sequences_cross_the_newest_row(patch: Patch) -> None:
    from rlsdk.buffers.rows import Rows

    patch.setattr(Rows, "oldest", property(lambda self: 0))


@mutant("buffer.sequences-are-true", "v-trace")
def padding_is_learned_from(patch: Patch) -> None:
    at = SequenceReplay.at
    patch.setattr(
        SequenceReplay,
        "at",
        lambda self, index: replace(batch := at(self, index), loss_mask=torch.ones_like(batch.loss_mask)),
    )


@mutant("buffer.sampling", "v-trace", alone=True)
def the_last_environment_is_never_sampled(patch: Patch) -> None:
    draw = SequenceReplay.draw

    def broken(self: Any, size: int, generator: Any) -> Any:
        index, envs = draw(self, size, generator), self.inner.context.num_envs
        return index - (index % envs == envs - 1).long() * (envs > 1)

    patch.setattr(SequenceReplay, "draw", broken)


@mutant("buffer.sampling")
def rows_are_drawn_from_the_global_generator(patch: Patch) -> None:
    draw = ReplayBuffer.draw
    patch.setattr(ReplayBuffer, "draw", lambda self, size, generator: draw(self, size, torch.default_generator))


@mutant("buffer.sampling")
def the_newest_rows_are_never_sampled(patch: Patch) -> None:
    draw = ReplayBuffer.draw

    def broken(self: Any, size: int, generator: Any) -> Any:
        index, stored, envs = draw(self, size, generator), self, self.context.num_envs
        newest = (stored.head - 1) % stored.ring
        return torch.where(
            (index // envs == newest) & (stored.filled > 1), (index - envs) % (stored.ring * envs), index
        )

    patch.setattr(ReplayBuffer, "draw", broken)


@mutant("buffer.sampling", "qrdqn")
def priorities_fall_with_the_error(patch: Patch) -> None:
    prioritize = PrioritizedReplay.prioritize
    patch.setattr(
        PrioritizedReplay, "prioritize", lambda self, index, error: prioritize(self, index, 1.0 / (error + 1e-3))
    )


@mutant("buffer.sampling", "dyna")
def own_records_ignore_the_generator(patch: Patch) -> None:
    from acme_dyna.memory import MoveMemory

    sample = MoveMemory.sample
    patch.setattr(MoveMemory, "sample", lambda self, size, generator: sample(self, size, torch.default_generator))


@mutant("buffer.state-round-trip", "dyna")
def the_oldest_row_is_forgotten(patch: Patch) -> None:
    from acme_dyna.memory import MoveMemory

    restore = MoveMemory.load_state_dict
    patch.setattr(MoveMemory, "load_state_dict", lambda self, state: restore(self, {**state, "oldest": 0}))


@mutant("buffer.state-round-trip", alone=True)
def two_memories_share_their_rows(patch: Patch) -> None:
    from rlsdk.buffers.rows import Rows

    allocate, pool = Rows.allocate, dict[str, Any]()

    def broken(self: Any, *, masks: bool) -> None:
        allocate(self, masks=masks)
        if self.rows == 15:
            self.storage["reward"] = pool.setdefault("reward", self.storage["reward"])

    patch.setattr(Rows, "allocate", broken)


@mutant("buffer.samples-are-copies", "dyna")
def own_records_are_views(patch: Patch) -> None:
    from acme_dyna.memory import MoveMemory, Moves

    def view(self: Any, size: int, generator: Any) -> Any:
        f = self.features
        return Moves(self.rows[:, :f], self.rows[:, f], self.rows[:, f + 1], self.rows[:, f + 2 : -1], self.rows[:, -1])

    patch.setattr(MoveMemory, "sample", view)


@mutant("buffer.length", "dyna", alone=True)
def own_records_exceed_the_capacity(patch: Patch) -> None:
    from acme_dyna.memory import MoveMemory

    make = MoveMemory.__init__
    patch.setattr(MoveMemory, "__init__", lambda self, capacity, *rest: make(self, capacity + 8, *rest))
