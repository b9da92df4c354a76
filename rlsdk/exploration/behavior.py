"""The policy that collects experience for off-policy algorithms with Box actions."""

from __future__ import annotations

from typing import Any, Protocol

from rlsdk.exploration.noisy_policy import NoisyPolicy
from rlsdk.exploration.uniform import UniformWarmUp
from rlsdk.interfaces import Policy
from rlsdk.math.action_noise import ActionNoise
from rlsdk.networks.action_scale import ActionScale
from rlsdk.registry.parts import BuildContext
from rlsdk.spaces import Box


class BehaviorSettings(Protocol):
    """The hyper-parameters of collecting."""

    @property
    def learning_starts(self) -> int: ...
    @property
    def action_noise(self) -> ActionNoise | None: ...


def noisy_behavior(
    policy: Policy[Any, Any], context: BuildContext, config: BehaviorSettings, *, warm_up: bool = True
) -> Policy[Any, Any]:
    """Uniform actions first (unless `warm_up` is off), then `policy`; `action_noise`, where there is one, on top of both.

    Raises:
        SettingsError: the noise does not fit the actions.
    """
    space = context.action_space
    assert isinstance(space, Box)
    behavior = UniformWarmUp(policy, space, config.learning_starts, context.num_envs) if warm_up else policy
    return behavior if config.action_noise is None else NoisyPolicy(behavior, config.action_noise, ActionScale(space))
