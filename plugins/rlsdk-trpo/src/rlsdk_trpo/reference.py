"""The step of TRPO in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1502.05477)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.interfaces import Distribution
from rlsdk.networks import ActorCritic
from rlsdk.records import Observation, Rollout, successors
from rlsdk.tree import map_tensors
from rlsdk_trpo.config import TRPOConfig

SETTINGS: dict[str, object] = {"cg_max_steps": 5, "target_kl": 0.5}
"""Settings for the clause: more conjugate gradients of such small networks are rounding, and long steps are often shortened."""
DECIDED = 1e-3
"""The line search compares numbers. Where they differ by a smaller share, rounding of float32 decides about the step."""
SOLVED = 1e-10
"""Conjugate gradients end at this squared residual."""
Networks = Mapping[str, Any]
Batch = Rollout[Any, Any]
Compared = Callable[[], tuple[Tensor, Tensor]]
Rows = tuple[Observation, Any, Tensor, Tensor, Tensor]
"""Observations, actions, their old log-probabilities, advantages and returns, [N, ..]."""


def losses(networks: Networks, batch: Batch, config: TRPOConfig, noise: float) -> Mapping[str, list[Tensor]]:
    """Return the loss of the value function, 0-d, once for each of its epochs. The rollout [T, B] is one minibatch."""
    rows = _rows(networks["policy"], batch, config)
    loss = (_evaluated(networks["policy"], rows[0])[1] - rows[-1]).square().mean()
    return {"algorithm.optimizer": [loss] * config.n_critic_updates}


def after(networks: Networks, batch: Batch, config: TRPOConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the policy's parameters [..] after a step (appendix C); nothing if rounding decides about its length."""
    network, every = deepcopy(networks["policy"]), _rows(networks["policy"], batch, config)
    count = len(every[-1]) // config.sub_sampling_factor
    seen, action, old_log_prob, advantage, _ = map_tensors(lambda leaf: leaf[:count], every)
    if config.normalize_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    parts = math.prod(getattr(network.head, "shape", ())) if config.kl_per_dimension else 1
    old = _evaluated(deepcopy(network).requires_grad_(False), seen)[0]

    def compared() -> tuple[Tensor, Tensor]:
        """Return the objective of equation 14, and the mean divergence from the policy before the step, both 0-d."""
        now = _evaluated(network, seen)[0]
        ratio = (now.log_prob(network.internal(action)) - old_log_prob).exp()
        return (ratio * advantage).mean(), now.kl_divergence(old).mean() / parts

    actor: list[nn.Parameter] = network.actor_parameters
    if not _search(actor, compared, _step(actor, compared, config), config):
        return {}
    own = set(map(id, actor))
    return {f"policy.{name}": each.detach() for name, each in network.named_parameters() if id(each) in own}


def _step(actor: list[nn.Parameter], compared: Compared, config: TRPOConfig) -> Tensor:
    """Return the natural gradient step [D] at whose end the divergence is `target_kl`, if it were a square."""

    def flat(value: Tensor, *, twice: bool = False) -> Tensor:
        parts = torch.autograd.grad(value, actor, retain_graph=True, create_graph=twice)
        return torch.cat([part.flatten() for part in parts])

    objective, divergence = compared()
    grad = flat(divergence, twice=True)

    def product(vector: Tensor) -> Tensor:
        return flat(grad @ vector) + config.cg_damping * vector

    direction = _solution(product, flat(objective), config.cg_max_steps)
    return direction * (2.0 * config.target_kl(0.5) / (direction @ product(direction))).sqrt()


def _search(actor: list[nn.Parameter], compared: Compared, step: Tensor, config: TRPOConfig) -> bool:
    """Move the parameters by the first share of `step` [D] that is good; return whether rounding does not decide about it."""
    start, before, bound = [each.detach().clone() for each in actor], compared()[0].detach(), config.target_kl(0.5)
    for tried in range(config.line_search_max_iter):
        _move(actor, start, config.line_search_shrinking_factor**tried * step)
        objective, divergence = (number.detach() for number in compared())
        if min(abs(objective - before) / abs(before), abs(divergence / bound - 1.0)) < DECIDED:
            return False
        if divergence < bound and objective > before:
            return True
    _move(actor, start, 0.0 * step)
    return True


def _rows(network: ActorCritic, batch: Batch, config: TRPOConfig) -> Rows:
    """Return the steps of a rollout, one environment after another, with generalized advantages and returns."""
    steps, value = batch.steps, batch.steps.extras.value
    ended = steps.terminated | steps.truncated
    following = map_tensors(lambda leaf: leaf.flatten(0, 1), successors(batch))
    with torch.no_grad():
        next_value = _evaluated(network, following)[1].view(value.shape)
    next_value[:-1] = torch.where(ended[:-1], next_value[:-1], value[1:])  # values when the actions were chosen
    advantage, later = torch.zeros_like(value), torch.zeros_like(value[0])
    for t in reversed(range(len(value))):
        delta = steps.reward[t] + config.gamma * next_value[t] * ~steps.terminated[t] - value[t]
        later = delta + config.gamma * config.gae_lambda * later * ~ended[t]
        advantage[t] = later
    rows = (steps.observation, steps.action, steps.extras.log_prob, advantage, advantage + value)
    return map_tensors(lambda leaf: leaf.transpose(0, 1).flatten(0, 1), rows)


def _evaluated(network: ActorCritic, seen: Observation) -> tuple[Distribution, Tensor]:
    """Return (distribution of actions, values [N]); each row begins a sequence, and there is no memory."""
    return network.evaluate(seen, ((), ()), torch.ones_like(seen.is_first))


def _solution(product: Callable[[Tensor], Tensor], wanted: Tensor, most: int) -> Tensor:
    """Return x [D] with product(x) = `wanted`, by conjugate gradients of at most `most` steps."""
    x, residual, direction = torch.zeros_like(wanted), wanted, wanted
    for _ in range(most):
        if residual @ residual < SOLVED:
            break
        along = product(direction)
        length = (residual @ residual) / (direction @ along)
        x, rest = x + length * direction, residual - length * along
        direction, residual = rest + (rest @ rest) / (residual @ residual) * direction, rest
    return x


@torch.no_grad()
def _move(parameters: list[nn.Parameter], start: list[Tensor], step: Tensor) -> None:
    parts = torch.split(step, [each.numel() for each in start])
    for parameter, before, part in zip(parameters, start, parts, strict=True):
        parameter.copy_(before + part.view_as(before))
