"""The update of discrete SAC. Source: Christodoulou 2019, arXiv:1910.07207, algorithm 1."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.interfaces import State
from rlsdk.math import half_squared_error, taken_values
from rlsdk.networks import ContinuousCritics
from rlsdk.records import Metrics, Observation, Transitions
from rlsdk.updates import UPDATES_BETWEEN_CHECKS, EntropyCoefficient, TrainedCritics
from rlsdk_discrete_sac.config import DiscreteSACConfig
from rlsdk_discrete_sac.networks import CategoricalActor, Distribution, values_of


class DiscreteSoftActorCritic:
    """Trains a categorical actor, critics with a target network, and an entropy coefficient that is fixed or learned.

    Expectations over actions are sums over all actions, so no action is sampled. The order in one update is: entropy
    coefficient, critics, actor, target network. If critics and actor share an encoder, only the actor's loss trains it.
    An action of several choices has separate values for each choice, each with a separate target (arXiv:1711.08946).
    """

    def __init__(
        self, actor: CategoricalActor, critics: ContinuousCritics, config: DiscreteSACConfig, device: str
    ) -> None:
        """Raises SettingsError if `ent_coef` is not an entropy coefficient."""
        self.actor, self.critics, self.config = actor, critics, config
        rate = config.learning_rate(1.0)
        self.trained = TrainedCritics(actor, critics, config.policy_kwargs, rate)
        # 0, as `update` subtracts the target of each row, which depends on its mask and on the schedule
        self.entropy = EntropyCoefficient(config.ent_coef, 0.0, rate, device)

    @property
    def td_error(self) -> Tensor | None:
        """Errors [N] of the last batch with importance weights; see `rlsdk.interfaces.AlgorithmAbilities`."""
        return self.trained.td_error

    def reconfigure(self, config: DiscreteSACConfig) -> None:
        """Use the settings of `config` from the next update on.

        Raises:
            SettingsError: `ent_coef` is not an entropy coefficient.
        """
        # a learned coefficient continues from its value unless the setting itself changed
        if config.ent_coef != self.config.ent_coef:
            self.entropy.begin(config.ent_coef)
        self.config = config

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions: one gradient step of each part, then an update of the target network."""
        # One step of each optimizer along the gradient of these losses, for one choice; p = pi(.|s), p' = pi(.|s'):
        #   y = r + discount * (p' * (target_critics(s').amin(0) - alpha * log p')).sum(-1)    # equations 3 and 10
        #   entropy_loss = log_alpha * (H(p) - scale * log(number of allowed actions)).mean()    # equation 11
        #   critic_loss = 0.5 * (critics(s)[:, action] - y.detach()).square().mean(1).sum()    # equation 4
        #   actor_loss = (p * (alpha * log p - critics(s).amin(0))).sum(-1).mean()    # equation 12
        actor, trained, remaining, seen = self.actor, self.trained, 1.0 - progress, batch.observation
        if trained.structure.changed() or trained.has_train_mode:
            trained.use_train_mode()
        rate, scale = self.config.learning_rate(remaining), self.config.target_entropy_scale(remaining)
        chosen, vjp = actor.evaluate(seen)
        entropy = chosen.entropy()
        # the target and the actor's loss use alpha as it was before its own step, as SAC does
        alpha, metrics = self.entropy.update(scale * actor.largest_entropy(seen.action_mask) - entropy, rate)
        metrics["train/critic_loss"] = self._learn_values(batch, alpha, rate)
        metrics["train/actor_loss"], grad = self._actor_loss(seen, chosen, alpha)
        trained.actor_optimizer.zero_grad()
        vjp(grad)
        trained.actor_optimizer.step(rate)
        if trained.updates % self.config.target_update_interval == 0:
            trained.target.update(self.config.tau)
        trained.updates += 1
        # reading a number waits for a GPU, so not after every update
        if trained.updates % UPDATES_BETWEEN_CHECKS == 0:
            self.entropy.warn_if_large(alpha)
        return {**metrics, "train/entropy": entropy.mean()}

    def _learn_values(self, batch: Transitions, alpha: Tensor, rate: float) -> Tensor:
        """Train the critics on N transitions; returns their loss, 0-d, a mean over choices."""
        actor, critics, following, size = self.actor, self.critics, batch.next_observation, len(batch.reward)
        trained, target = self.trained, self.trained.target.network
        with torch.no_grad():
            after = actor.distribution_of(following)
            smallest = values_of(target, target.encoder(following.features))[0].amin(0)
            soft = actor.per_choice(after.probs * (smallest - alpha * after.log_probs))
            wanted = torch.addcmul(batch.reward.unsqueeze(-1), batch.discount.unsqueeze(-1), soft)
        # the actor's loss alone trains an encoder that both share
        with torch.set_grad_enabled(not trained.shared):
            features = critics.encoder(batch.observation.features)
        every, vjp = values_of(critics, features)
        action = actor.from_environment(batch.action).view(size, -1)
        taken, taken_vjp = taken_values(every.permute(1, 2, 0).contiguous(), action, actor.sizes)
        values = taken.transpose(0, 2)  # [choices, N, C] to [C, N, choices]
        loss, grad = half_squared_error(values, wanted, weight=batch.weight)
        trained.optimizer.zero_grad()
        vjp(taken_vjp(grad.transpose(0, 2).contiguous()).permute(2, 0, 1).contiguous())
        trained.optimizer.step(rate)
        # errors are for priorities, which only batches with importance weights have
        trained.td_error = None if batch.weight is None else (wanted - values).abs().mean((0, 2))
        return loss

    @torch.no_grad()
    def _actor_loss(self, seen: Observation, chosen: Distribution, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return (the loss, 0-d, summed over choices; its gradient with respect to the logits, [N, A])."""
        actor, critics = self.actor, self.critics
        # encoded again, because the step has changed the encoder; the actor climbs the values of the new critics
        values = values_of(critics, critics.encoder(seen.features))[0].amin(0)
        probs, costs = chosen.probs, alpha * chosen.log_probs - values
        means = actor.per_choice(probs * costs)
        # the derivative of alpha log p adds the same number to all costs of a choice, which cancels
        grad = probs * (costs - actor.per_value(means)) / len(values)
        return means.sum(-1).mean(), grad

    @torch.no_grad()
    def state_values(self, observation: Observation) -> Tensor:
        """V [N] without the entropy bonus: the mean over critics, actions and choices; see
        `rlsdk.interfaces.PolicyAbilities`."""
        values = values_of(self.critics, self.critics.encoder(observation.features))[0].mean(0)
        return self.actor.per_choice(self.actor.distribution_of(observation).probs * values).mean(-1)

    def state_dict(self) -> State:
        return {**self.trained.state_dict(), "entropy": self.entropy.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.trained.load_state_dict(state)
        self.entropy.load_state_dict(state["entropy"])
