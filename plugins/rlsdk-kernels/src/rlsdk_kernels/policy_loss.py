"""The loss of an actor-critic method in numpy.

It consists of about thirty operations on short vectors, for which calls of torch would take three times as long.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.kernels import PolicyRows
from rlsdk.updates import LossTerms, PolicyOutputs

Floats = NDArray[np.float32]
LossGrads = tuple[Tensor, Tensor | None, Tensor]
"""Gradients of the loss with respect to log-probabilities, entropies (None: not in the loss) and values, float [N] each."""


class PolicyLossKernel:
    """See `rlsdk.kernels.protocol.PolicyLoss`."""

    @np.errstate(all="ignore")  # numbers that are not finite appear in the result
    def __call__(self, rows: PolicyRows, now: PolicyOutputs, terms: LossTerms) -> tuple[Tensor, LossGrads]:
        size, weight = len(rows.target), None if rows.weight is None else rows.weight.numpy()
        share: Floats = _equal_shares(size) if weight is None else weight / np.add.reduce(weight)
        advantage = rows.advantage.numpy()
        if terms.normalize_advantage:
            advantage = normalized(advantage, weight)
        log_prob, entropy = now.log_prob.numpy(), now.entropy.numpy()
        if terms.clip is None:
            policy = -(advantage * log_prob).dot(share)
            grad_log_prob, kl, outside = -advantage * share, 0.0, 0.0
        else:
            log_ratio = log_prob - rows.log_prob.numpy()
            ratio = np.exp(log_ratio)
            moved, away = ratio * advantage, ratio - 1.0
            bounded = np.minimum(np.maximum(ratio, 1.0 - terms.clip), 1.0 + terms.clip) * advantage
            policy, kl = -np.minimum(moved, bounded).dot(share), (away - log_ratio).dot(share)
            outside = np.add.reduce(share[np.abs(away) > terms.clip])
            moved *= moved <= bounded
            grad_log_prob = np.negative(moved, out=moved)
            grad_log_prob *= share
        values, grad_value = _value_error(rows, now, terms.clip_value, share)
        grad_value *= share * (2.0 * terms.vf_coef)
        disorder = entropy.dot(share)
        loss = policy - terms.ent_coef * disorder + terms.vf_coef * values
        means = torch.from_numpy(np.array([policy, values, -disorder, kl, outside, loss], np.float32))
        grad_entropy = torch.from_numpy(share * -terms.ent_coef) if terms.ent_coef else None
        return means, (torch.from_numpy(grad_log_prob), grad_entropy, torch.from_numpy(grad_value))


@lru_cache(16)
def _equal_shares(size: int) -> Floats:
    """1 / size, float [size], read-only."""
    return np.broadcast_to(np.full(size, 1.0 / size, np.float32), size)


def normalized(advantage: Floats, weight: Floats | None) -> Floats:
    """The same as `rlsdk.math.surrogate.normalized`, float [N]."""
    rows = advantage if weight is None else advantage[weight > 0.0]
    if len(rows) < 2:
        return advantage
    mean = np.add.reduce(rows) / np.float32(len(rows))
    centered: Floats = rows - mean
    squares = centered.dot(centered)
    if not isfinite(squares) and advantage.dtype == np.float32:  # advantages above 1e18 have squares beyond float32
        wide: Floats = normalized(advantage.astype(np.float64), weight)
        return wide.astype(np.float32)
    deviation = np.sqrt(squares / np.float32(len(rows) - 1))
    all_centered: Floats = centered if weight is None else advantage - mean
    all_centered /= deviation + np.float32(1e-8)
    return all_centered


def _value_error(rows: PolicyRows, now: PolicyOutputs, clip: float | None, share: Floats) -> tuple[np.float32, Floats]:
    """(mean of squared errors; half of the gradient of each row's error [N])."""
    value, target = now.value.numpy(), rows.target.numpy()
    if clip is None:
        error = value - target
        return (error * error).dot(share), error
    old = rows.value.numpy()
    step = value - old
    error = old + np.minimum(np.maximum(step, -clip), clip) - target
    mean = (error * error).dot(share)
    error *= np.abs(step) <= clip
    return mean, error
