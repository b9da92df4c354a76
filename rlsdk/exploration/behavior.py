"""The policy that collects experience for off-policy algorithms with Box actions."""

from __future__ import annotations

from typing import TypeVar

from rlsdk.exploration.noisy_policy import NoiseCarry, NoisyPolicy
from rlsdk.exploration.uniform import UniformWarmUp, WarmUpCarry
from rlsdk.interfaces import BuildContext, Policy
from rlsdk.networks.action_scale import ActionScale
from rlsdk.settings.off_policy import ContinuousOffPolicyConfig
from rlsdk.spaces import Box

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


Behavior = (
    Policy[CarryT, ExtrasT]
    | Policy[WarmUpCarry[CarryT], object]
    | Policy[NoiseCarry[CarryT], object]
    | Policy[NoiseCarry[WarmUpCarry[CarryT]], object]
)
"""A policy, with or without warm-up and action noise."""


def noisy_behavior(
    policy: Policy[CarryT, ExtrasT], context: BuildContext, config: ContinuousOffPolicyConfig, *, warm_up: bool = True
) -> Behavior[CarryT, ExtrasT]:
    """The policy that collects experience: `policy` after a warm-up of uniformly random actions, with action noise.

    `warm_up=False` leaves out the warm-up. The noise is that of the setting `action_noise`; None adds no noise. It is also
    added to the actions of the warm-up.

    Raises:
        SettingsError: the noise has neither one number nor one number per action dimension.
    """
    space = context.action_space
    assert isinstance(space, Box)
    noise, scale = config.action_noise, ActionScale(space)
    if not warm_up:
        return policy if noise is None else NoisyPolicy(policy, noise, scale)
    warming = UniformWarmUp(policy, space, config.learning_starts, context.num_envs)
    return warming if noise is None else NoisyPolicy(warming, noise, scale)
