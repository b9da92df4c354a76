"""The losses of Dyna in plain formulas, for the clause `formula.reference` of the contract kit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from acme_dyna.config import DynaConfig
from acme_dyna.memory import Moves


def losses(
    networks: Mapping[str, Any], batch: Moves, config: DynaConfig, noise: float
) -> Mapping[str, Tensor | list[Tensor]]:
    """Return the losses of Q-learning from real and then from imagined steps, and that of the model, each 0-d."""
    batch = replace(batch, action=batch.action - networks["policy"].space.start)
    following, reward, logit = _predicted(networks, batch.observation, batch.action)
    ended = batch.terminated.double()
    surprise = -(ended * logit.sigmoid().log() + (1.0 - ended) * (-logit).sigmoid().log())
    errors = (following - batch.next_observation).square().mean(), (reward - batch.reward).square().mean()
    model_loss = errors[0] + errors[1] + surprise.mean()
    real = _loss(networks, batch, config)
    with torch.no_grad():
        action = torch.zeros_like(batch.action)  # the kit makes every random whole number 0
        following, reward, logit = _predicted(networks, batch.observation, action)
    dreams = _loss(networks, Moves(batch.observation, action, reward, following, logit > 0.0), config)
    return {
        "algorithm.learner.optimizer": [real, *[dreams] * config.planning_steps],
        "algorithm.optimizer": model_loss,
    }


def _predicted(networks: Mapping[str, Any], observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the model's next observations [N, F], rewards [N] and logits of termination [N]."""
    model = networks["algorithm.model"]
    output = model.layers(torch.cat([observation, one_hot(action, model.actions).double()], -1))
    return observation + output[:, :-2], output[:, -2], output[:, -1]


def _loss(networks: Mapping[str, Any], moves: Moves, config: DynaConfig) -> Tensor:
    """Return half the mean squared error of the values of the actions taken, numbered from 0."""
    online, target = networks["policy"], networks["algorithm.learner.target.network"]
    with torch.no_grad():
        values = target(moves.next_observation)
        best = (online(moves.next_observation) if config.double_q else values).argmax(-1, keepdim=True)
        wanted = moves.reward + config.gamma * values.gather(-1, best).squeeze(-1) * ~moves.terminated
    error = online(moves.observation).gather(-1, moves.action.view(-1, 1)).squeeze(-1) - wanted
    return error.square().mean() / 2
