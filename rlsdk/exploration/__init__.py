"""Exploration: action noise, uniformly random actions, epsilon-greedy actions and state-dependent noise."""

from typing import TYPE_CHECKING

from rlsdk.exploration.behavior import UniformWarmUp, noisy_behavior, random_actions
from rlsdk.networks.action_heads import StateDependentNoise, epsilon_greedy
from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.settings.action_noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

__all__ = [
    "NormalActionNoise",
    "OrnsteinUhlenbeckActionNoise",
    "StateDependentNoise",
    "UniformWarmUp",
    "epsilon_greedy",
    "noisy_behavior",
    "random_actions",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
