"""New settings for policies that collect experience."""

from __future__ import annotations

from typing import Any

from rlsdk.errors import UsageError
from rlsdk.exploration.noisy_policy import NoisyPolicy
from rlsdk.exploration.uniform import UniformWarmUp


def reconfigure_behavior(policy: Any, config: Any) -> None:
    """Give warm-up and action noise, and what they wrap, new settings; other policies take theirs by `reconfigure(config)`.

    Raises:
        UsageError: `action_noise` becomes None, which needs another policy.
    """
    if isinstance(policy, UniformWarmUp):
        policy.steps = config.learning_starts
        reconfigure_behavior(policy.inner, config)
    elif isinstance(policy, NoisyPolicy):
        if config.action_noise is None:
            raise UsageError("action_noise cannot end while the agent lives; give noise with sigma = 0")
        policy.noise = config.action_noise
        reconfigure_behavior(policy.inner, config)
    elif hasattr(policy, "reconfigure"):
        policy.reconfigure(config)
