"""The loss of REINFORCE in plain formulas, for the clause `formula.reference` of the contract kit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from acme_reinforce.config import ReinforceConfig
from rlsdk.records import Rollout
from rlsdk.tree import map_tensors


def losses(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], config: ReinforceConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the loss, 0-d: -log pi(a|s) times the normalized return after it, over the steps of finished episodes."""
    policy, steps = networks["policy"], batch.steps
    ended = steps.terminated | steps.truncated
    taken, gains = list[Tensor](), list[Tensor]()
    features = map_tensors(lambda leaf: leaf.flatten(0, 1), steps.observation)
    every = policy.distribution(features).log_prob(steps.action.flatten() - policy.start).view(ended.shape)
    for env in range(ended.shape[1]):
        ends = ended[:, env].nonzero().flatten().tolist()
        for t in range(ends[-1] + 1 if ends else 0):
            last = next(end for end in ends if end >= t)
            rewards = steps.reward[t : last + 1, env]
            gains.append((rewards * config.gamma ** torch.arange(len(rewards))).sum())
            taken.append(every[t, env])
    if not gains:
        return {}
    gain = torch.stack(gains) - torch.stack(gains).mean()
    scale = gain.square().mean().sqrt() + 1e-8
    return {"algorithm.optimizer": -(torch.stack(taken) * gain / scale).mean()}
