"""Exploration: parts and wrappers that add exploration to a policy. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.exploration.behavior import noisy_behavior as noisy_behavior
    from rlsdk.exploration.extras import extras_of_other_action as extras_of_other_action
    from rlsdk.exploration.noisy_policy import NoisyPolicy as NoisyPolicy
    from rlsdk.exploration.uniform import UniformWarmUp as UniformWarmUp
    from rlsdk.math.action_noise import NormalActionNoise as NormalActionNoise
    from rlsdk.math.action_noise import OrnsteinUhlenbeckActionNoise as OrnsteinUhlenbeckActionNoise
    from rlsdk.networks.epsilon_greedy import epsilon_greedy as epsilon_greedy
    from rlsdk.networks.state_dependent_noise import StateDependentNoise as StateDependentNoise

__all__ = [
    "NoisyPolicy",
    "NormalActionNoise",
    "OrnsteinUhlenbeckActionNoise",
    "StateDependentNoise",
    "UniformWarmUp",
    "epsilon_greedy",
    "extras_of_other_action",
    "noisy_behavior",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "NormalActionNoise": "rlsdk.math.action_noise",
        "OrnsteinUhlenbeckActionNoise": "rlsdk.math.action_noise",
        "NoisyPolicy": "rlsdk.exploration.noisy_policy",
        "StateDependentNoise": "rlsdk.networks.state_dependent_noise",
        "UniformWarmUp": "rlsdk.exploration.uniform",
        "epsilon_greedy": "rlsdk.networks.epsilon_greedy",
        "extras_of_other_action": "rlsdk.exploration.extras",
        "noisy_behavior": "rlsdk.exploration.behavior",
    },
)
