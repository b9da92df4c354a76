"""Exploration: parts and wrappers that make a policy try things. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk.exploration.action_noise import NormalActionNoise as NormalActionNoise
    from rlsdk.exploration.action_noise import OrnsteinUhlenbeckActionNoise as OrnsteinUhlenbeckActionNoise
    from rlsdk.exploration.epsilon_greedy import epsilon_greedy as epsilon_greedy
    from rlsdk.exploration.extras import extras_of_other_action as extras_of_other_action
    from rlsdk.exploration.noisy_policy import NoisyPolicy as NoisyPolicy
    from rlsdk.exploration.state_dependent_noise import StateDependentNoise as StateDependentNoise
    from rlsdk.exploration.uniform import UniformWarmUp as UniformWarmUp

__all__ = [
    "NoisyPolicy",
    "NormalActionNoise",
    "OrnsteinUhlenbeckActionNoise",
    "StateDependentNoise",
    "UniformWarmUp",
    "epsilon_greedy",
    "extras_of_other_action",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "NormalActionNoise": "rlsdk.exploration.action_noise",
        "OrnsteinUhlenbeckActionNoise": "rlsdk.exploration.action_noise",
        "NoisyPolicy": "rlsdk.exploration.noisy_policy",
        "StateDependentNoise": "rlsdk.exploration.state_dependent_noise",
        "UniformWarmUp": "rlsdk.exploration.uniform",
        "epsilon_greedy": "rlsdk.exploration.epsilon_greedy",
        "extras_of_other_action": "rlsdk.exploration.extras",
    },
)
