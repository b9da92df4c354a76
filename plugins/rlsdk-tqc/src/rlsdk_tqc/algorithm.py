"""One update of truncated quantile critics. Source: Kuznetsov et al. 2020, arXiv:2005.04269, algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor

from rlsdk.engines import Structure
from rlsdk.math.quantiles import quantile_huber, td_error
from rlsdk.math.scratch import Scratch
from rlsdk.math.stored import count_in
from rlsdk.networks import ContinuousCritics, SquashedActor, mode_matters
from rlsdk.records import Metrics, Transitions
from rlsdk.updates import EntropyCoefficient, FlatOptimizer, TargetNetwork
from rlsdk_tqc.config import TQCConfig
from rlsdk_tqc.loss import truncated_target
from rlsdk_tqc.new_settings import take_settings


class TruncatedQuantileCritics:
    """Soft actor-critic whose critics predict quantiles, of which the largest are dropped from the target."""

    def __init__(
        self,
        actor: SquashedActor,
        critics: ContinuousCritics,
        entropy: EntropyCoefficient,
        config: TQCConfig,
        generator: Generator,
    ) -> None:
        self.actor, self.critics, self.entropy, self.config, self.generator = actor, critics, entropy, config, generator
        self.shared = critics.encoder is actor.encoder
        networks, rate = config.policy_kwargs, config.learning_rate(1.0)
        trained = critics.ensemble if self.shared else critics
        choice, arguments = networks.optimizer_class, networks.optimizer_kwargs
        self.actor_optimizer = FlatOptimizer(actor, choice, rate, arguments)
        self.critic_optimizer = FlatOptimizer(trained, choice, rate, arguments)
        self.target = TargetNetwork(critics)
        self.keep = config.kept_quantiles
        self.structure, self.mode_matters = Structure(actor, critics), False
        self.updates, self.scratch = 0, Scratch()
        self.td_error: Tensor | None = None  # [N] of the last batch, for prioritised memories

    reconfigure = take_settings

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """One gradient step of the entropy coefficient, the critics and the actor, then the target network's move."""
        if self.structure.changed():
            self.mode_matters = mode_matters(self.actor, self.critics)
        if self.mode_matters:
            self.actor.train()
            self.critics.train()
        rate = self.config.learning_rate(1.0 - progress)
        noise = self._noise(len(batch.reward))
        features = self.actor.encoder(batch.observation.features)
        action, log_prob, pull = self.actor.sampled(features, noise[0])
        alpha, metrics = self.entropy.update(log_prob, rate)
        critic_loss = self._update_critics(batch, alpha, noise[1], rate)
        value, slope = self._action_gradient(batch, action)
        self.actor_optimizer.zero_grad()
        pull(-slope, (alpha / len(log_prob)).expand_as(log_prob))  # of mean(alpha * log pi - Q)
        self.actor_optimizer.step(rate)
        actor_loss = alpha * log_prob.mean() - value
        if self.updates % self.config.target_update_interval == 0:
            self.target.update(self.config.tau)
        self.updates += 1
        return {"train/critic_loss": critic_loss, "train/actor_loss": actor_loss, **metrics}

    def _noise(self, rows: int) -> Tensor:
        """Standard normal noise of the two actor passes, [2, N, A]."""
        shape = (2, rows, self.actor.scale.size)
        return torch.randn(shape, generator=self.generator, device=self.generator.device)

    @torch.no_grad()
    def _target(self, batch: Transitions, alpha: Tensor, noise: Tensor) -> Tensor:
        """Target atoms [N, keep]."""
        observation = batch.next_observation.features
        features = self.actor.encoder(observation)
        action, log_prob, _ = self.actor.sampled(features, noise)
        atoms, _ = self.target.network.evaluated(self.target.network.encoder(observation), action)
        return truncated_target(atoms, log_prob, batch.reward, batch.discount, alpha, keep=self.keep)

    def _update_critics(self, batch: Transitions, alpha: Tensor, noise: Tensor, rate: float) -> Tensor:
        target = self._target(batch, alpha, noise)
        with torch.set_grad_enabled(not self.shared):
            features = self.critics.encoder(batch.observation.features)
        quantiles, pull = self.critics.evaluated(features, self.actor.scale.to_unit(batch.action))
        loss, gradient = quantile_huber(
            quantiles, target, sum_over_quantiles=False, weight=batch.weight, scratch=self.scratch
        )
        if batch.weight is not None:
            self.td_error = td_error(quantiles, target)
        self.critic_optimizer.zero_grad()
        pull(gradient)
        self.critic_optimizer.step(rate)
        return loss

    def _action_gradient(self, batch: Transitions, action: Tensor) -> tuple[Tensor, Tensor]:
        """(mean value, 0-d; its gradient with respect to the actor's actions): what the actor climbs."""
        with torch.no_grad():
            features = self.critics.encoder(batch.observation.features)
        return self.critics.action_gradient(features, action)

    def state_dict(self) -> Mapping[str, Any]:
        """Everything the update remembers, the actor's weights excepted: they are the policy's."""
        return {
            "critic": dict(self.critics.ensemble.state_dict() if self.shared else self.critics.state_dict()),
            "critic_target": self.target.state_dict(),
            "entropy": self.entropy.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
            "counters": {"updates": self.updates},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        critics = self.critics.ensemble if self.shared else self.critics
        critics.load_state_dict(state["critic"])
        self.target.load_state_dict(state["critic_target"])
        self.entropy.load_state_dict(state["entropy"])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        self.updates = count_in(state["counters"], "updates")
