"""One update of Returns. Fill in `policy_loss` and `value_loss`; the rest is what every on-policy algorithm does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from rlsdk.math.surrogate import mean_of, normalized
from rlsdk.networks import ActorCritic
from rlsdk.records import Metrics, Rollout
from rlsdk.updates import FlatOptimizer, policy_batch, shuffled
from torch import Generator, Tensor

from rlsdk_returns.config import ReturnsConfig


def policy_loss(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """FILL IN: what makes good actions likelier, float [N]. Here: the policy gradient of an actor-critic."""
    return -log_prob * advantage


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """FILL IN: how far values are from what followed, float [N]. Here: the squared error."""
    return (value - target).square()


class Returns:
    """Learns from each rollout once it is complete."""

    def __init__(self, network: ActorCritic, config: ReturnsConfig, generator: Generator) -> None:
        self.network, self.config, self.generator = network, config, generator
        self.optimizer = FlatOptimizer(network, "adam", config.learning_rate(1.0))

    def update(self, batch: Rollout[Any, Any], *, progress: float) -> Metrics:
        """Learn from a rollout [T, B]; the metrics are those of the last minibatch."""
        config, metrics = self.config, dict[str, Tensor]()
        rows = policy_batch(batch, self.network, gamma=config.gamma, lam=config.gae_lambda)
        for _ in range(config.n_epochs):
            for part in shuffled(rows, config.batch_size, self.generator):
                distribution, value = self.network.evaluate(part.observation, part.memory, part.starts)
                log_prob = distribution.log_prob(self.network.internal(part.action))
                weight = part.weight  # 0 for rows in which an environment was only reset, None where there are none
                advantage = normalized(part.advantage, weight) if config.normalize_advantage else part.advantage
                policy = mean_of(policy_loss(log_prob, part.log_prob, advantage), weight)
                values = mean_of(value_loss(value, part.target), weight)
                entropy = mean_of(distribution.entropy(), weight)
                self.optimizer.zero_grad()
                torch.autograd.backward(policy + config.vf_coef * values - config.ent_coef * entropy)
                self.optimizer.step(config.learning_rate(1.0 - progress), config.max_grad_norm)
                losses = {"train/policy_loss": policy, "train/value_loss": values, "train/entropy_loss": -entropy}
                metrics = {name: loss.detach() for name, loss in losses.items()}
        return metrics

    def reconfigure(self, config: ReturnsConfig) -> None:
        """Take over the settings that `live` in rlsdk.toml lists."""
        self.config = config

    def state_dict(self) -> Mapping[str, Any]:
        """The optimiser; the weights are the policy's."""
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
