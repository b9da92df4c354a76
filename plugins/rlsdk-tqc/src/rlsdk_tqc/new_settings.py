"""New settings for a TQC update that exists."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from rlsdk.errors import UsageError
from rlsdk.updates.soft_actor_critic import parse_entropy_coefficient

if TYPE_CHECKING:
    from rlsdk.updates import EntropyCoefficient
    from rlsdk_tqc.algorithm import TruncatedQuantileCritics
    from rlsdk_tqc.config import TQCConfig


def take_settings(algorithm: TruncatedQuantileCritics, config: TQCConfig) -> None:
    """Use new settings from the next update on.

    Raises:
        UsageError: `action_noise` becomes None or was None, which needs another policy for collecting.
        SettingsError: `ent_coef` is no entropy coefficient.
    """
    before = algorithm.config
    if (config.action_noise is None) != (before.action_noise is None):
        raise UsageError(
            "action_noise cannot begin or end while the agent lives; give noise with sigma = 0, or"
            " load(path, action_noise=value)"
        )
    if config.ent_coef != before.ent_coef:
        replace_coefficient(algorithm.entropy, config.ent_coef)
    algorithm.entropy.target_entropy = config.target_entropy_for(algorithm.actor.scale.size)
    algorithm.actor.resample_every, algorithm.keep = config.sde_period, config.kept_quantiles
    algorithm.config = config


@torch.no_grad()
def replace_coefficient(entropy: EntropyCoefficient, value: str | float) -> None:
    """Use another `ent_coef` from now on; a learnt one begins at its initial value."""
    initial, entropy.learnt = parse_entropy_coefficient(value)
    entropy.fixed = torch.full_like(entropy.fixed, initial)
    if entropy.learnt:
        entropy.log_alpha.fill_(math.log(initial))
