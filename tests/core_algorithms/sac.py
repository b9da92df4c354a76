"""Soft actor-critic. Source: Haarnoja et al. 2018, arXiv:1812.05905, algorithm 1."""

from __future__ import annotations

from torch import Tensor

from rlsdk.buffers import build_replay
from rlsdk.exploration import noisy_behavior
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.math.value_losses import clipped_double_q, half_squared_error, minimum_value
from rlsdk.networks import build_soft_actor_critic
from rlsdk.records import Transitions
from rlsdk.registry import AlgorithmSpec, Manifest
from rlsdk.settings.soft_actor_critic import SoftActorCriticConfig
from rlsdk.training import OffPolicyPlan
from rlsdk.updates import SoftActorCritic

OBSERVATIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")


class MinimumOfCritics:
    """The critics' part of SAC: the smallest of C values counts, against overestimation (arXiv:1802.09477)."""

    def target(self, next_values: Tensor, next_log_prob: Tensor, alpha: Tensor, batch: Transitions) -> Tensor:
        """r + discount * (min Q' - alpha log pi(a'|s')) [N, 1], equation 3."""
        return clipped_double_q(next_values, -alpha * next_log_prob, batch.reward, batch.discount)

    def loss(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Equation 5, for values [C, N, 1]."""
        return half_squared_error(values, target, weight=weight)

    def actor_value(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """min Q [C, N, 1] in equation 7."""
        return minimum_value(values)

    def reconfigure(self, config: SoftActorCriticConfig) -> None:
        """There is nothing to set."""


def build(context: BuildContext, config: SoftActorCriticConfig) -> Parts:
    """The parts of one SAC agent."""
    require_spaces(context, "SAC", actions=("Box",), observations=OBSERVATIONS)
    actor, critics = build_soft_actor_critic(context, config)
    return Parts(
        policy=actor,
        algorithm=SoftActorCritic(actor, critics, MinimumOfCritics(), config, context.streams["update"]),
        plan=OffPolicyPlan.of(config),
        buffer=build_replay(context, config),
        behavior=noisy_behavior(actor, context, config, warm_up=config.warms_up_uniformly),
    )


SPEC = AlgorithmSpec(
    id="sac",
    family="off-policy",
    config_type=SoftActorCriticConfig,
    build=build,
    policies=POLICIES,
    live=SoftActorCriticConfig.LIVE,
)
MANIFEST = Manifest(
    id="sac",
    title="Soft actor-critic",
    summary="off-policy, Box actions: two critics, learnt entropy",
    family="off-policy",
    sdk=">=0.1",
    actions=("Box",),
    observations=OBSERVATIONS,
    policies=POLICIES,
    traits=("replay", "gsde", "action_noise"),
)
