"""The loss of behavior cloning in plain formulas, for the clause `formula.reference` of the contract kit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from acme_cloning.config import CloningConfig
from rlsdk.records import Transitions
from rlsdk.spaces import Discrete


def losses(
    networks: Mapping[str, Any], batch: Transitions, config: CloningConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the mean of -log pi(a|s), 0-d: of a softmax, or of independent Gaussians."""
    policy = networks["policy"]
    output = policy.layers(policy.encoder(batch.observation.features))
    if isinstance(policy.actions, Discrete):
        if batch.observation.action_mask is not None:
            output = output.masked_fill(~batch.observation.action_mask, -math.inf)
        taken = (batch.action.long() - policy.actions.start).view(-1, 1)
        return {"algorithm.optimizer": -output.log_softmax(-1).gather(-1, taken).mean()}
    error = (batch.action.flatten(1) - output) / policy.log_std.exp()
    surprise = error.square() / 2 + policy.log_std + math.log(2.0 * math.pi) / 2
    return {"algorithm.optimizer": surprise.sum(-1).mean()}
