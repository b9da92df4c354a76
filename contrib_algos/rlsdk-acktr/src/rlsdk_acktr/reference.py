"""The step of ACKTR in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1708.05144).

The damped Kronecker product of a layer is a matrix here, with which a system of linear equations is solved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.networks import ActorCritic
from rlsdk.records import Rollout, successors
from rlsdk.tree import map_tensors
from rlsdk_acktr.config import ACKTRConfig

SETTINGS: dict[str, object] = {"cold_iter": 1}
"""Settings for the clause: its few updates would otherwise follow plain gradients."""
Batch = Rollout[Any, Any]
Networks = Mapping[str, Any]
Calls = list[tuple[str, Tensor, Tensor]]
"""Name of a dense layer, its inputs [N, I] and its outputs [N, O]."""


def losses(networks: Networks, batch: Batch, config: ACKTRConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the loss of a rollout [T, B], 0-d, for dense networks without memory; after the cold phase, one whose gradient is
    the natural gradient of that loss (section 3.1), within the trust region (section 3.2)."""
    network = networks["policy"]
    loss, score, calls = _loss(network, batch, config)
    if networks["algorithm.updates"] < config.cold_iter:
        return {"algorithm.optimizer": loss}
    parameters = dict(network.named_parameters())
    grads = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
    plain = dict(zip(parameters, grads, strict=True))
    natural, count = dict[str, Tensor](), len(calls[0][1])
    grads = torch.autograd.grad(score, [output for _, _, output in calls], retain_graph=True)
    for (name, inputs, _), grad in zip(calls, grads, strict=True):
        ones = torch.cat([inputs, torch.ones(count, 1)], -1)  # for the bias
        found = ones.T @ ones / count, grad.T @ grad / count
        solved = _solved(
            networks, name, found, torch.cat([plain[f"{name}.weight"], plain[f"{name}.bias"][:, None]], 1), config
        )
        natural[f"{name}.weight"], natural[f"{name}.bias"] = solved[:, :-1], solved[:, -1]
    for name in parameters.keys() - natural.keys():  # in no dense layer: its diagonal
        squared = torch.autograd.grad(score, parameters[name], retain_graph=True)[0].square() / count
        block = f"algorithm.fisher.others.{name}"
        natural[name] = plain[name] / (_averaged(networks, block, 0, squared, config) + config.damping)
    curvature = sum((plain[name] * natural[name]).sum() for name in parameters) * config.learning_rate(0.5) ** 2
    bound = (config.kfac_clip / curvature).sqrt().clamp(max=1.0)  # eta of section 3.2
    return {"algorithm.optimizer": sum((bound * natural[name] * each).sum() for name, each in parameters.items())}


def _loss(network: ActorCritic, batch: Batch, config: ACKTRConfig) -> tuple[Tensor, Tensor, Calls]:
    """Return (the loss of A2C, 0-d; the log-likelihood of sampled outputs, 0-d; the calls of dense layers)."""
    steps, calls = batch.steps, Calls()
    seen, following, action = map_tensors(
        lambda leaf: leaf.flatten(0, 1), (steps.observation, successors(batch), steps.action)
    )
    starts, lam = (
        torch.ones(steps.reward.numel(), dtype=torch.bool),
        1.0 if config.gae_lambda is None else config.gae_lambda,
    )
    with torch.no_grad():
        next_value = network.evaluate(following, ((), ()), starts)[1].view(steps.reward.shape)
    handles = [
        layer.register_forward_hook(
            lambda _, inputs, output, name=name: calls.append((name, inputs[0].detach(), output))
        )
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    distribution, value = network.evaluate(seen, ((), ()), starts)
    for handle in handles:
        handle.remove()
    before, ended = value.detach().view(steps.reward.shape), steps.terminated | steps.truncated
    if steps.extras.value is not None:  # the values when the actions were chosen
        before = steps.extras.value
        next_value[:-1] = torch.where(ended[:-1], next_value[:-1], before[1:])
    advantage, later = torch.zeros_like(before), torch.zeros_like(before[0])
    for t in reversed(range(len(before))):
        delta = steps.reward[t] + config.gamma * next_value[t] * ~steps.terminated[t] - before[t]
        later = delta + config.gamma * lam * later * ~ended[t]
        advantage[t] = later
    advantage, target = advantage.flatten(), (advantage + before).flatten()
    if config.normalize_advantage or (config.normalize_advantage is None and hasattr(network.head, "log_std")):
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_prob = distribution.log_prob(network.internal(action))
    rows = -advantage * log_prob + config.vf_coef * (target - value).square() - config.ent_coef * distribution.entropy()
    # a Gaussian around the value has the score 2 c times its noise, whose sign the kit makes 1
    return rows.mean(), (log_prob + 2.0 * config.vf_fisher_coef * value).sum(), calls


def _solved(networks: Networks, name: str, found: tuple[Tensor, Tensor], plain: Tensor, config: ACKTRConfig) -> Tensor:
    """Return (A x G + damping)^-1 times the gradient of a layer [O, I + 1]. `found`: A and G of this batch."""
    block = f"algorithm.fisher.layers.{name}"
    inputs, outputs = (_averaged(networks, block, place, each, config) for place, each in enumerate(found))
    values, vectors = networks[f"{block}.tensors.2"], networks[f"{block}.tensors.3"]
    if (networks["algorithm.updates"] - config.cold_iter) % config.kfac_update and bool(vectors.any()):
        # the factors of an earlier update
        inputs = vectors @ values.diag() @ vectors.T
        values, vectors = networks[f"{block}.tensors.4"], networks[f"{block}.tensors.5"]
        outputs = vectors @ values.diag() @ vectors.T
    if config.factored_damping:  # arXiv:1503.05671, section 6.3
        ratio = ((inputs.trace() / len(inputs)) / (outputs.trace() / len(outputs))).sqrt()
        inputs = inputs + ratio * config.damping**0.5 * torch.eye(len(inputs))
        outputs = outputs + config.damping**0.5 / ratio * torch.eye(len(outputs))
        matrix = torch.kron(outputs, inputs)
    else:
        matrix = torch.kron(outputs, inputs)
        matrix = matrix + config.damping * torch.eye(len(matrix))
    solved: Tensor = torch.linalg.solve(matrix, plain.flatten())
    return solved.view_as(plain)


def _averaged(networks: Networks, block: str, place: int, found: Tensor, config: ACKTRConfig) -> Tensor:
    """Return the running average [..] of a factor after this update (arXiv:1503.05671, section 5); the first weigh the same."""
    share: float = min(1.0 - 1.0 / (networks[f"{block}.count"] + 1), config.stats_decay)
    before: Tensor = networks[f"{block}.tensors.{place}"]
    return share * before + (1.0 - share) * found
