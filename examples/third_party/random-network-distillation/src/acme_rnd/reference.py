"""The loss of PPO with RND in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1810.12894)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from acme_rnd.config import RNDConfig
from rlsdk.records import Rollout, successors
from rlsdk.tree import map_tensors

SHARE = 0.1
"""The share of the newest rollout in the running mean square of intrinsic returns."""


def losses(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], config: RNDConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the loss of a rollout [T, B] that is one minibatch, 0-d."""
    policy, steps = networks["policy"], batch.steps
    shape, statistics = steps.reward.shape, after(networks, batch, config, noise)
    seen, following = map_tensors(lambda leaf: leaf.flatten(0, 1), (steps.observation, successors(batch)))
    extrinsic, intrinsic = policy.values(seen)
    with torch.no_grad():
        bonus = _novelty(networks, batch).view(shape) / (statistics["algorithm.return_square"].sqrt() + 1e-8)
        own, curious = extrinsic.view(shape), intrinsic.view(shape)
        after_own = policy.values(following)[0].view(shape)
        after_curious = torch.cat([curious[1:], policy.values(batch.last_observation)[1].unsqueeze(0)])
        ended = steps.terminated | steps.truncated
        error = steps.reward + config.gamma * after_own * ~steps.terminated - own
        error_curious = bonus + config.intrinsic_gamma * after_curious - curious
        advantage = _discounted(error, config.gamma * config.gae_lambda * ~ended)
        # the intrinsic return is not cut where episodes end
        surprise = _discounted(error_curious, torch.full(shape, config.intrinsic_gamma * config.gae_lambda))
        both = (config.extrinsic_coef * advantage + config.intrinsic_coef * surprise).flatten()
        both = (both - both.mean()) / (both.std() + 1e-8)
        targets = (advantage + own).flatten(), (surprise + curious).flatten()
    chosen = policy.distribution(seen)
    ratio = (chosen.log_prob(steps.action.flatten() - policy.start) - steps.extras.flatten()).exp()
    clipped = ratio.clamp(1.0 - config.clip_range, 1.0 + config.clip_range)
    errors = ((extrinsic - targets[0]).square() + (intrinsic - targets[1]).square()) / 2
    rows = -torch.minimum(ratio * both, clipped * both) + config.vf_coef * errors - config.ent_coef * chosen.entropy()
    return {"algorithm.optimizer": (rows + _novelty(networks, batch, statistics)).mean()}


def after(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], config: RNDConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the running mean and mean square of the inputs, their number, and the mean square of intrinsic returns."""
    with torch.no_grad():
        bonus = _novelty(networks, batch).view(batch.steps.reward.shape)
        returns = _discounted(bonus, torch.full_like(bonus, config.intrinsic_gamma))
        old, novelty, rows = networks["algorithm.return_square"], networks["algorithm.novelty"], _rows(networks, batch)
        count = novelty.count + len(rows)
        mean = (novelty.mean * novelty.count + rows.sum(0)) / count
        square = (novelty.square * novelty.count + rows.square().sum(0)) / count
    return {
        "algorithm.novelty.mean": mean,
        "algorithm.novelty.square": square,
        "algorithm.novelty.count": count,
        "algorithm.return_square": (1.0 - SHARE) * old + SHARE * returns.square().mean(),
    }


def _rows(networks: Mapping[str, Any], batch: Rollout[Any, Any]) -> Tensor:
    """Return the next observations as inputs of the networks, [N, F]."""
    flat = map_tensors(lambda leaf: leaf.flatten(0, 1), successors(batch))
    rows: Tensor = networks["algorithm.novelty"].encoder(flat.features).double()
    return rows


def _novelty(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], statistics: Mapping[str, Tensor] | None = None
) -> Tensor:
    """Return the squared errors of the prediction [N] of inputs that are normalized with these statistics."""
    novelty = networks["algorithm.novelty"]
    mean, square = novelty.mean, novelty.square
    if statistics is not None:
        mean, square = statistics["algorithm.novelty.mean"], statistics["algorithm.novelty.square"]
    variance = (square - mean.square()).clamp(min=1e-8)
    rows = ((_rows(networks, batch) - mean) / variance.sqrt()).clamp(-5.0, 5.0)
    errors: Tensor = (novelty.predictor(rows) - novelty.random(rows)).square().mean(-1)
    return errors


def _discounted(terms: Tensor, factor: Tensor) -> Tensor:
    """Return the sums x(t) = terms(t) + factor(t) * x(t + 1), [T, B]."""
    sums, later = torch.zeros_like(terms), torch.zeros_like(terms[0])
    for t in reversed(range(len(terms))):
        later = terms[t] + factor[t] * later
        sums[t] = later
    return sums
