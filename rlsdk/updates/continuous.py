"""The update of the soft actor-critic family. Source: Haarnoja et al. 2018, arXiv:1812.05905, algorithm 1."""

from __future__ import annotations

import math
import warnings
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk.kernels import graphed
from rlsdk.kernels.protocol import Learnt
from rlsdk.networks.critics import ContinuousCritics
from rlsdk.networks.own_networks import OwnCritics
from rlsdk.networks.squashed_actor import SquashedActor
from rlsdk.records import Metrics, Observation, Transitions
from rlsdk.settings.action_noise import require_noise_stays
from rlsdk.settings.soft_actor_critic import SoftActorCriticConfig, parse_entropy_coefficient
from rlsdk.updates.critic_loss import CriticLoss
from rlsdk.updates.optimizer import FlatOptimizer
from rlsdk.updates.states import EntropyState, SoftActorCriticState
from rlsdk.updates.target_network import TrainedCritics

ConfigT = TypeVar("ConfigT", bound=SoftActorCriticConfig)


class SoftActorCritic(Generic[ConfigT]):
    """Trains a squashed Gaussian actor, critics with a target network, and an entropy coefficient that is fixed or
    learnt.

    The order in one update is: entropy coefficient, critics, actor, target network. If critics and actor share an
    encoder, only the actor's loss trains it.
    """

    def __init__(
        self,
        actor: SquashedActor,
        critics: ContinuousCritics | OwnCritics,
        critic_loss: CriticLoss[ConfigT],
        config: ConfigT,
        generator: Generator,
    ) -> None:
        """`generator` samples the noise of the actor's actions, on the device of the networks."""
        self.actor, self.critics, self.critic_loss, self.config = actor, critics, critic_loss, config
        self.generator, rate = generator, config.learning_rate(1.0)
        target_entropy = config.target_entropy_for(actor.scale.size)
        self.entropy = EntropyCoefficient(config.ent_coef, target_entropy, rate, str(generator.device))
        self.trained = TrainedCritics(actor, critics, config.policy_kwargs, rate)
        self.actor_optimizer, self.target = self.trained.actor_optimizer, self.trained.target

    @property
    def td_error(self) -> Tensor | None:
        """Errors [N] of the last batch with importance weights; see `rlsdk.interfaces.HasTdError`."""
        return self.trained.td_error

    def reconfigure(self, config: ConfigT) -> None:
        """Use the settings of `config` from the next update on.

        Raises:
            UsageError: `action_noise` is set where it was None, or None where it was set, which needs another
                collecting policy.
            SettingsError: `ent_coef` is not an entropy coefficient.
        """
        before = self.config
        require_noise_stays(before.action_noise, config.action_noise)
        if config.ent_coef != before.ent_coef:
            self.entropy.begin(config.ent_coef)
        self.entropy.target_entropy = config.target_entropy_for(self.actor.scale.size)
        self.actor.resample_every = config.sde_period
        self.critic_loss.reconfigure(config)
        self.config = config

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions: one gradient step of each part, then an update of the target network."""
        self.trained.begin()
        rate, shape = self.config.learning_rate(1.0 - progress), (2, len(batch.reward), self.actor.scale.size)
        noise = torch.randn(shape, generator=self.generator, device=self.generator.device)
        moves_target = self.trained.updates % self.config.target_update_interval == 0
        metrics, self.trained.td_error = self._learn((batch, noise), rate, moves_target)
        self.trained.updates += 1
        if self.entropy.learnt and self.trained.updates % UPDATES_BETWEEN_CHECKS == 0:
            self.entropy.warn_if_large(float(metrics["train/ent_coef"]))
        return metrics

    @graphed("updates", "td_error", "warned")
    def _learn(self, inputs: tuple[Transitions, Tensor], rate: float, moves_target: bool) -> Learnt:
        """Learn from N transitions; `noise` [2, N, A] is for two evaluations of the actor. Returns metrics and TD errors."""
        batch, noise = inputs
        (action, log_prob), vjp = self.actor.evaluate(self.actor.encoder(batch.observation.features), noise[0])
        alpha, metrics = self.entropy.update(log_prob, rate)
        critic_loss, error = self.trained.step(batch, self._target(batch, alpha, noise[1]), self.critic_loss.loss, rate)
        value, grad = self.trained.action_gradient(batch, action, self.critic_loss.actor_value)
        self.actor_optimizer.zero_grad()
        vjp(-grad, (alpha / len(log_prob)).expand_as(log_prob))  # gradient of mean(alpha * log pi - Q), eq. 9
        self.actor_optimizer.step(rate)
        if moves_target:
            self.target.update(self.config.tau)
        return {"train/critic_loss": critic_loss, "train/actor_loss": alpha * log_prob.mean() - value, **metrics}, error

    @torch.no_grad()
    def _target(self, batch: Transitions, alpha: Tensor, noise: Tensor) -> Tensor:
        """The targets of the critics [N, M]. The next actions are sampled with `noise` [N, A]."""
        observation, target = batch.next_observation.features, self.target.network
        (action, log_prob), _ = self.actor.evaluate(self.actor.encoder(observation), noise)
        values, _ = target.evaluate(target.encoder(observation), action)
        return self.critic_loss.target(values, log_prob, alpha, batch)

    @torch.no_grad()
    def state_values(self, observation: Observation) -> Tensor:
        """V [N]: the mean over all critics at the modes of the policy; see `rlsdk.interfaces.EstimatesValues`."""
        noise = torch.zeros(len(observation.is_first), self.actor.scale.size, device=self.generator.device)
        (action, _), _ = self.actor.evaluate(self.actor.encoder(observation.features), noise)
        return self.critics.evaluate(self.critics.encoder(observation.features), action)[0].mean((0, -1))

    def state_dict(self) -> SoftActorCriticState:
        return {**self.trained.state_dict(), "entropy": self.entropy.state_dict()}

    def load_state_dict(self, state: SoftActorCriticState, /) -> None:
        self.trained.load_state_dict(state)
        self.entropy.load_state_dict(state["entropy"])


UPDATES_BETWEEN_CHECKS = 1000
"""The number of updates between two checks of the size of a learnt entropy coefficient."""
LARGEST_COEFFICIENT = 1000.0
"""A warning is given above this value: such a coefficient outweighs the returns of almost any task."""


class EntropyCoefficient:
    """The entropy coefficient alpha: fixed, or learnt so that the policy's entropy approaches a target.

    The loss of a learnt one is -log_alpha * mean(log_prob + target_entropy): arXiv:1812.05905, eq. 17, with log_alpha
    in place of alpha.
    """

    def __init__(self, value: str | float, target_entropy: float, learning_rate: float, device: str) -> None:
        initial, self.learnt = parse_entropy_coefficient(value)
        self.target_entropy = target_entropy
        self.fixed = torch.tensor(initial, device=device)
        self.log_alpha = nn.Parameter(torch.full((1,), math.log(initial) if self.learnt else 0.0, device=device))
        self.optimizer = FlatOptimizer([self.log_alpha], "adam", learning_rate)
        self.warned = False

    @property
    def value(self) -> Tensor:
        """Alpha as it is now, 0-d, without graph."""
        return self.log_alpha.detach().exp().squeeze(0) if self.learnt else self.fixed

    @torch.no_grad()
    def update(self, log_prob: Tensor, learning_rate: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (alpha before this update, 0-d; metrics), given log-densities [N] of the policy's own actions."""
        if not self.learnt:
            return self.fixed, {"train/ent_coef": self.fixed}
        alpha = self.log_alpha.exp().squeeze(0)
        gradient = -(log_prob + self.target_entropy).mean()
        loss = self.log_alpha.squeeze(0) * gradient
        self.optimizer.gradients.copy_(gradient)
        self.optimizer.step(learning_rate)
        return alpha, {"train/ent_coef": alpha, "train/ent_coef_loss": loss}

    def warn_if_large(self, alpha: float) -> None:
        if alpha > LARGEST_COEFFICIENT and not self.warned:
            self.warned = True
            warnings.warn(
                f"the learnt ent_coef has grown to {alpha:,.0f}: the entropy outweighs the returns; set ent_coef to a"
                " number such as 0.1, lower target_entropy, or scale the rewards (normalize=True)",
                stacklevel=2,
            )

    @torch.no_grad()
    def begin(self, value: str | float) -> None:
        """Use another `ent_coef` from now on. A learnt one begins at its initial value.

        Raises:
            SettingsError: `value` is not an entropy coefficient.
        """
        initial, self.learnt = parse_entropy_coefficient(value)
        self.fixed = torch.full_like(self.fixed, initial)
        if self.learnt:
            self.log_alpha.fill_(math.log(initial))

    def state_dict(self) -> EntropyState:
        return {"log_alpha": self.log_alpha.detach().clone(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: EntropyState) -> None:
        with torch.no_grad():
            self.log_alpha.copy_(state["log_alpha"])
        self.optimizer.load_state_dict(state["optimizer"])
