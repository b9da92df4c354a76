"""The update of proximal policy optimisation. Source: Schulman et al. 2017, arXiv:1707.06347."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from rlsdk.buffers.minibatches import PolicyBatch, in_order, policy_batch, shuffled
from rlsdk.math.schedules import Schedule
from rlsdk.math.surrogate import (
    approximate_kl,
    clipped_surrogate,
    explained_variance,
    mean_of,
    normalized,
    value_loss,
)
from rlsdk.networks.actor_critic import ActorCritic
from rlsdk.records import Metrics, Rollout
from rlsdk.settings.networks import NetworkConfig
from rlsdk.updates.optimizer import FlatOptimizer, adam_arguments


class ClippedPolicySettings(Protocol):
    """The hyper-parameters of the update."""

    @property
    def learning_rate(self) -> Schedule: ...
    @property
    def batch_size(self) -> int | None: ...
    @property
    def n_epochs(self) -> int: ...
    @property
    def gamma(self) -> float: ...
    @property
    def gae_lambda(self) -> float: ...
    @property
    def clip_range(self) -> Schedule: ...
    @property
    def clip_range_vf(self) -> Schedule | None: ...
    @property
    def normalize_advantage(self) -> bool: ...
    @property
    def ent_coef(self) -> float: ...
    @property
    def vf_coef(self) -> float: ...
    @property
    def max_grad_norm(self) -> float: ...
    @property
    def target_kl(self) -> float | None: ...
    @property
    def policy_kwargs(self) -> NetworkConfig: ...


class ClippedPolicy:
    """Several epochs of minibatches on one rollout, the policy kept near the one that collected it."""

    def __init__(
        self,
        network: ActorCritic,
        config: ClippedPolicySettings,
        generator: Generator,
        *,
        cut_every: int | None = None,
    ) -> None:
        """`cut_every`: steps after which gradients through a memory are cut."""
        self.network, self.config, self.generator, self.cut_every = network, config, generator, cut_every
        choice, arguments = config.policy_kwargs.optimizer_class, config.policy_kwargs.optimizer_kwargs
        self.optimizer = FlatOptimizer(
            network.parameters(), choice, config.learning_rate(1.0), adam_arguments(choice, arguments)
        )
        self.updates = 0
        """Epochs begun so far, the documented count."""

    def update(self, batch: Rollout[Any, Any], *, progress: float) -> Metrics:
        """Learn from a rollout; metrics are means over its minibatches."""
        config, remaining = self.config, 1.0 - progress
        rate, clip = config.learning_rate(remaining), config.clip_range(remaining)
        clip_value = None if config.clip_range_vf is None else config.clip_range_vf(remaining)
        rows = policy_batch(batch, self.network, gamma=config.gamma, lam=config.gae_lambda, cut_every=self.cut_every)
        if self.network.mode_matters:
            self.network.train()
        totals: dict[str, Tensor] = {}
        count = 0
        for minibatch in self._minibatches(rows):
            loss, metrics = self._loss(minibatch, clip, clip_value)
            count += 1
            for name, value in metrics.items():
                totals[name] = totals[name] + value if name in totals else value
            if config.target_kl is not None and float(metrics["train/approx_kl"]) > 1.5 * config.target_kl:
                break
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step(rate, config.max_grad_norm)
        means = {name: value / count for name, value in totals.items()}
        facts = {"train/explained_variance": explained_variance(rows.value, rows.target)}
        return {**means, **facts, **self._settings_now(rows, clip, clip_value)}

    def _minibatches(self, rows: PolicyBatch) -> Iterator[PolicyBatch]:
        split = in_order if self.network.recurrent else shuffled
        for _ in range(self.config.n_epochs):
            self.updates += 1
            yield from split(rows, self.config.batch_size or len(rows), self.generator)

    def _loss(self, rows: PolicyBatch, clip: float, clip_value: float | None) -> tuple[Tensor, dict[str, Tensor]]:
        config, weight = self.config, rows.weight
        distribution, value = self.network.evaluate(rows.observation, rows.memory, rows.starts)
        log_ratio = distribution.log_prob(self.network.internal(rows.action)) - rows.log_prob
        ratio = log_ratio.exp()
        advantage = normalized(rows.advantage, weight) if config.normalize_advantage else rows.advantage
        policy = clipped_surrogate(ratio, advantage, clip, weight)
        values = value_loss(value, rows.value, rows.target, clip_value, weight)
        entropy = mean_of(distribution.entropy(), weight)
        loss = policy - config.ent_coef * entropy + config.vf_coef * values
        with torch.no_grad():
            metrics = {
                "train/policy_gradient_loss": policy,
                "train/value_loss": values,
                "train/entropy_loss": -entropy,
                "train/approx_kl": approximate_kl(log_ratio, weight),
                "train/clip_fraction": mean_of(((ratio - 1.0).abs() > clip).to(torch.float32), weight),
                "train/loss": loss,
            }
        return loss, {name: metric.detach() for name, metric in metrics.items()}

    def _settings_now(self, rows: PolicyBatch, clip: float, clip_value: float | None) -> dict[str, Tensor]:
        """Schedules and the policy's spread, for the log."""
        facts = {"train/clip_range": rows.value.new_tensor(clip)}
        if clip_value is not None:
            facts["train/clip_range_vf"] = rows.value.new_tensor(clip_value)
        if (std := self.network.action_std()) is not None:
            facts["train/std"] = std
        return facts

    def state_dict(self) -> Mapping[str, Any]:
        """The optimiser and the count; the weights are the policy's."""
        return {"optimizer": self.optimizer.state_dict(), "counters": {"updates": self.updates}}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["counters"]["updates"])
