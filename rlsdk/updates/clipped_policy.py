"""The update of proximal policy optimisation. Source: Schulman et al. 2017, arXiv:1707.06347."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from rlsdk.buffers.minibatches import PolicyBatch, in_order, policy_batch, shuffled
from rlsdk.engines import Fitted
from rlsdk.math.schedules import Schedule
from rlsdk.math.stored import count_in
from rlsdk.math.surrogate import (
    approximate_kl,
    clipped_surrogate,
    clipped_surrogate_slope,
    explained_variance,
    normalized,
    value_error,
    value_error_slope,
)
from rlsdk.networks.actor_critic import ActorCritic
from rlsdk.records import Metrics, Rollout
from rlsdk.settings.networks import NetworkConfig
from rlsdk.updates.evaluation import Evaluation, Evaluator, Slopes, evaluator_of
from rlsdk.updates.optimizer import FlatOptimizer
from rlsdk.updates.optimizer_choice import adam_arguments

METRICS = (
    "train/policy_gradient_loss",
    "train/value_loss",
    "train/entropy_loss",
    "train/approx_kl",
    "train/clip_fraction",
    "train/loss",
)
KL = METRICS.index("train/approx_kl")


class ClippedPolicySettings(Protocol):
    """The hyper-parameters of the update."""

    @property
    def learning_rate(self) -> Schedule: ...
    @property
    def n_steps(self) -> int: ...
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
        burn_in: int = 0,
        num_envs: int = 1,
    ) -> None:
        """`cut_every`: steps after which gradients through a memory are cut. `burn_in`: see `in_order`. `num_envs`: columns of
        a rollout, all of which is learnt from at once where `batch_size` is None."""
        self.num_envs = num_envs
        self.network, self.config, self.generator = network, config, generator
        self.cut_every, self.burn_in = cut_every, burn_in
        choice, arguments = config.policy_kwargs.optimizer_class, config.policy_kwargs.optimizer_kwargs
        self.optimizer = FlatOptimizer(network, choice, config.learning_rate(1.0), adam_arguments(choice, arguments))
        self._evaluator: Fitted[Evaluator] = Fitted(self._fit, network)
        self.updates = 0
        """Epochs begun so far, the documented count."""

    def _rows_at_once(self, config: ClippedPolicySettings) -> int:
        return config.batch_size or config.n_steps * self.num_envs

    def reconfigure(self, config: ClippedPolicySettings) -> None:
        """Use new settings from the next update on: all but those of networks."""
        self.cut_every = getattr(config, "sequence_length", self.cut_every)
        self.burn_in = getattr(config, "burn_in", self.burn_in)
        self.config = config
        self._evaluator.fit()  # which one is fastest depends on batch_size

    def _fit(self, hooked: bool) -> Evaluator:
        self.optimizer.zero_grad()  # gradients of new parameters have their place in its vector
        return evaluator_of(self.network, self._rows_at_once(self.config), hooked=hooked)

    @property
    def evaluate(self) -> Evaluator:
        """What evaluates the network as it is now."""
        return self._evaluator()

    def update(self, batch: Rollout[Any, Any], *, progress: float) -> Metrics:
        """Learn from a rollout; metrics are means over its minibatches."""
        config, remaining = self.config, 1.0 - progress
        rate, clip = config.learning_rate(remaining), config.clip_range(remaining)
        clip_value = None if config.clip_range_vf is None else config.clip_range_vf(remaining)
        rows = policy_batch(batch, self.network, gamma=config.gamma, lam=config.gae_lambda, cut_every=self.cut_every)
        evaluate = self.evaluate
        rows = evaluate.prepared(rows)
        if self.network.mode_matters:
            self.network.train()
        total, count = torch.zeros(len(METRICS), device=rows.value.device), 0
        for minibatch in self._minibatches(rows):
            now = evaluate(minibatch)
            seen, slopes = self._loss(minibatch, now, clip, clip_value)
            total += seen
            count += 1
            if config.target_kl is not None and float(seen[KL]) > 1.5 * config.target_kl:
                break
            self.optimizer.zero_grad()
            now.pull(*slopes)
            self.optimizer.step(rate, config.max_grad_norm)
        means = dict(zip(METRICS, (total / max(count, 1)).unbind(), strict=True))
        facts = {"train/explained_variance": explained_variance(rows.value, rows.target)}
        return {**means, **facts, **self._settings_now(rows, clip, clip_value)}

    def _minibatches(self, rows: PolicyBatch) -> Iterator[PolicyBatch]:
        size = self.config.batch_size or len(rows)
        for _ in range(self.config.n_epochs):
            self.updates += 1
            if self.network.recurrent:
                yield from in_order(rows, size, self.generator, self.burn_in)
            else:
                yield from shuffled(rows, size, self.generator)

    def _loss(self, rows: PolicyBatch, now: Evaluation, clip: float, clip_value: float | None) -> tuple[Tensor, Slopes]:
        """(the means called `METRICS`, gradients of the loss with respect to what was evaluated)."""
        config, weight = self.config, rows.weight
        log_ratio = now.log_prob - rows.log_prob
        ratio = log_ratio.exp()
        advantage = normalized(rows.advantage, weight) if config.normalize_advantage else rows.advantage
        policy = clipped_surrogate(ratio, advantage, clip)
        values = value_error(now.value, rows.value, rows.target, clip_value)
        losses = policy - config.ent_coef * now.entropy + config.vf_coef * values
        outside = ((ratio - 1.0).abs() > clip).to(policy.dtype)
        seen = torch.stack((policy, values, -now.entropy, approximate_kl(ratio, log_ratio), outside, losses))
        share = 1.0 / len(rows) if weight is None else weight / weight.sum()
        of_policy = clipped_surrogate_slope(ratio, advantage, clip).mul_(share)
        of_entropy = torch.full_like(ratio, -config.ent_coef).mul_(share) if config.ent_coef else None
        of_value = value_error_slope(now.value, rows.value, rows.target, clip_value).mul_(share * config.vf_coef)
        return (seen.mean(1) if weight is None else seen @ share), (of_policy, of_entropy, of_value)

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
        self.updates = count_in(state["counters"], "updates")
