"""Settings that are accepted and then ignored, or that an existing agent does not take over."""

from __future__ import annotations

from typing import Any

import attrs

import rlsdk_qrdqn.build
import rlsdk_recurrent_ppo.build
import rlsdk_tqc.build
from rlsdk.settings.schedules import Constant
from rlsdk.training import OffPolicyPlan, OnPolicyPlan
from rlsdk.updates import ClippedPolicy, FlatOptimizer, QLearning, SoftActorCritic, TargetNetwork
from rlsdk_ars.algorithm import RandomSearch
from rlsdk_trpo.algorithm import TrustRegionPolicy
from tests.mutants.catalog import Patch, mutant


def ignore(patch: Patch, kind: Any, method: str, **fixed: Any) -> None:
    """Give settings fixed values inside one method of a part."""
    original = getattr(kind, method)

    def broken(self: Any, *arguments: Any, **named: Any) -> Any:
        given, self.config = self.config, attrs.evolve(self.config, **fixed)
        try:
            return original(self, *arguments, **named)
        finally:
            self.config = given

    patch.setattr(kind, method, broken)


def build_without(patch: Patch, module: Any, function: str, **fixed: Any) -> None:
    """Give settings fixed values inside a function that a plugin's `build` calls. Settings of networks:
    `policy_kwargs={...}`."""
    original = getattr(module, function)

    def broken(context: Any, config: Any, *arguments: Any, **named: Any) -> Any:
        networks = attrs.evolve(config.policy_kwargs, **fixed.get("policy_kwargs", {}))
        return original(context, attrs.evolve(config, **{**fixed, "policy_kwargs": networks}), *arguments, **named)

    patch.setattr(module, function, broken)


@mutant("settings.have-effect", "maskable-ppo")
def every_rollout_is_passed_once(patch: Patch) -> None:
    ignore(patch, ClippedPolicy, "update", n_epochs=1)


@mutant("settings.have-effect", "maskable-ppo", alone=True)
def the_gradient_is_never_scaled_down(patch: Patch) -> None:
    step, next_steps = FlatOptimizer.step, FlatOptimizer.next_steps
    patch.setattr(FlatOptimizer, "step", lambda self, rate, max_norm=None: step(self, rate))
    patch.setattr(FlatOptimizer, "next_steps", lambda self, rate, max_norm=None: next_steps(self, rate))


@mutant("settings.have-effect", "maskable-ppo")
def advantages_are_always_normalized(patch: Patch) -> None:
    ignore(patch, ClippedPolicy, "update", normalize_advantage=True)


@mutant("settings.have-effect", "maskable-ppo")
def values_are_never_clipped(patch: Patch) -> None:
    ignore(patch, ClippedPolicy, "update", clip_range_vf=None)


@mutant("settings.have-effect", "recurrent-ppo")
def advantages_have_their_own_gamma(patch: Patch) -> None:
    ignore(patch, ClippedPolicy, "update", gamma=0.99)


@mutant("settings.have-effect", "recurrent-ppo")
def the_memory_has_always_one_layer(patch: Patch) -> None:
    build_without(patch, rlsdk_recurrent_ppo.build, "build_actor_critic", policy_kwargs={"n_lstm_layers": 1})


@mutant("settings.have-effect", "recurrent-ppo")
def a_rollout_has_one_length(patch: Patch) -> None:
    of = OnPolicyPlan.of
    patch.setattr(OnPolicyPlan, "of", lambda config, context: of(attrs.evolve(config, n_steps=16), context))


@mutant("settings.have-effect")
def the_target_moves_by_a_fixed_share(patch: Patch) -> None:
    update = TargetNetwork.update
    patch.setattr(TargetNetwork, "update", lambda self, tau: update(self, 0.005))


@mutant("settings.have-effect")
def batches_have_one_size(patch: Patch) -> None:
    of = OffPolicyPlan.of
    patch.setattr(OffPolicyPlan, "of", lambda config: of(attrs.evolve(config, batch_size=16)))


@mutant("settings.have-effect")
def the_memory_discounts_by_the_default(patch: Patch) -> None:
    build_without(patch, rlsdk_tqc.build, "build_replay", gamma=0.99)


@mutant("settings.have-effect")
def hidden_layers_are_always_relu(patch: Patch) -> None:
    build_without(patch, rlsdk_tqc.build, "build_soft_actor_critic", policy_kwargs={"activation_fn": "relu"})


@mutant("settings.have-effect")
def the_target_entropy_is_always_minus_the_dimensions(patch: Patch) -> None:
    build_target = SoftActorCritic.__init__

    def broken(self: Any, actor: Any, critics: Any, loss: Any, config: Any, generator: Any) -> None:
        build_target(self, actor, critics, loss, attrs.evolve(config, target_entropy="auto"), generator)

    patch.setattr(SoftActorCritic, "__init__", broken)


@mutant("settings.have-effect")
def noise_matrices_are_never_drawn_again(patch: Patch) -> None:
    build_without(patch, rlsdk_tqc.build, "build_soft_actor_critic", sde_sample_freq=-1)


@mutant("settings.have-effect", "qrdqn")
def the_target_network_always_selects(patch: Patch) -> None:
    ignore(patch, QLearning, "_target", double_q=False)


@mutant("settings.have-effect", "qrdqn")
def exploration_falls_at_once(patch: Patch) -> None:
    ignore(patch, QLearning, "collected", exploration_fraction=0.005)


@mutant("settings.have-effect", "qrdqn")
def observations_of_images_are_always_divided(patch: Patch) -> None:
    build_without(patch, rlsdk_qrdqn.build, "build_discrete_value_policy", policy_kwargs={"normalize_images": True})


@mutant("settings.have-effect", "trpo")
def conjugate_gradients_always_take_fifteen_steps(patch: Patch) -> None:
    ignore(patch, TrustRegionPolicy, "update", cg_max_steps=15)


@mutant("settings.have-effect", "ars")
def all_directions_are_followed(patch: Patch) -> None:
    ignore(patch, RandomSearch, "update", n_top=None)


@mutant("settings.schedules-followed", "ars", alone=True)
def the_deviation_is_that_of_the_start(patch: Patch) -> None:
    propose = RandomSearch.propose

    def broken(self: Any, *, progress: float) -> Any:
        given, self.config = self.config, attrs.evolve(self.config, delta_std=Constant(self.config.delta_std(1.0)))
        try:
            return propose(self, progress=progress)
        finally:
            self.config = given

    patch.setattr(RandomSearch, "propose", broken)


@mutant("settings.schedules-followed", "ars")
def the_deviation_runs_backwards(patch: Patch) -> None:
    propose = RandomSearch.propose

    def broken(self: Any, *, progress: float) -> Any:
        return propose(self, progress=1.0 - progress)

    patch.setattr(RandomSearch, "propose", broken)


@mutant("settings.schedules-followed")
def the_step_size_is_that_of_the_start(patch: Patch) -> None:
    update = SoftActorCritic.update
    patch.setattr(SoftActorCritic, "update", lambda self, batch, progress: update(self, batch, progress=0.0))


@mutant("settings.as-declared", alone=True)
def a_smaller_memory_forgets_more(patch: Patch) -> None:
    build = rlsdk_tqc.build.build_replay

    def broken(context: Any, config: Any) -> Any:
        size = 20 if config.optimize_memory_usage else config.buffer_size
        return build(context, attrs.evolve(config, buffer_size=size))

    patch.setattr(rlsdk_tqc.build, "build_replay", broken)


@mutant("settings.as-declared", "maskable-ppo")
def a_log_of_fewer_episodes_learns_from_fewer_steps(patch: Patch) -> None:
    of = OnPolicyPlan.of

    def broken(config: Any, context: Any) -> Any:
        return of(attrs.evolve(config, n_steps=min(config.n_steps, config.stats_window_size // 10)), context)

    patch.setattr(OnPolicyPlan, "of", broken)


@mutant("settings.live-take-over", alone=True)
def a_new_target_entropy_is_not_taken_over(patch: Patch) -> None:
    reconfigure = SoftActorCritic.reconfigure

    def broken(self: Any, config: Any) -> None:
        before = self.entropy.target_entropy
        reconfigure(self, config)
        self.entropy.target_entropy = before

    patch.setattr(SoftActorCritic, "reconfigure", broken)


@mutant("settings.live-take-over", "ars")
def new_settings_are_not_taken_over(patch: Patch) -> None:
    patch.setattr(RandomSearch, "reconfigure", lambda self, config: None)
