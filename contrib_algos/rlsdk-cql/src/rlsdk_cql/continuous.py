"""The update of CQL for Box actions: soft actor-critic with the penalty. Source: Kumar et al. 2020, arXiv:2006.04779."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from rlsdk.distributions import SquashedGaussian
from rlsdk.interfaces import State
from rlsdk.math import clipped_double_q, half_squared_error
from rlsdk.networks import ContinuousCritics, OwnCritics, SquashedActor, mean_of_smallest
from rlsdk.records import Metrics, Observation, Transitions
from rlsdk.updates import EntropyCoefficient, TargetNetwork, TrainedCritics
from rlsdk_cql.config import CQLConfig
from rlsdk_cql.penalty import PenaltyWeight, sampled_penalty


class ConservativeActorCritic:
    """Trains critics with the penalty, a squashed Gaussian actor, and an entropy coefficient, from recorded transitions.

    The order in one update is: entropy coefficient, critics, actor, target network.
    """

    def __init__(
        self, actor: SquashedActor, critics: ContinuousCritics | OwnCritics, config: CQLConfig, generator: Generator
    ) -> None:
        """`generator` samples actions, on the device of the networks."""
        self.actor, self.critics, self.config, self.generator = actor, critics, config, generator
        rate, device = config.learning_rate(1.0), str(generator.device)
        self.trained = TrainedCritics(actor, critics, config.policy_kwargs, rate)
        self.entropy = EntropyCoefficient(config.ent_coef, self._target_entropy(config), rate, device)
        self.weight = PenaltyWeight(config.alpha, config.threshold, rate, device)

    @property
    def target(self) -> TargetNetwork[ContinuousCritics | OwnCritics]:
        """The target network of the critics, under the name it has for choices too."""
        return self.trained.target

    def _target_entropy(self, config: CQLConfig) -> float:
        wanted = config.target_entropy
        return -float(self.actor.scale.size) if wanted == "auto" else float(wanted)

    def reconfigure(self, config: CQLConfig) -> None:
        """Use new settings from the next update on. Raises SettingsError: `ent_coef` is not an entropy coefficient."""
        if config.ent_coef != self.config.ent_coef:
            self.entropy.begin(config.ent_coef)
        self.entropy.target_entropy = self._target_entropy(config)
        self.weight.reconfigure(config.alpha, config.threshold)
        self.config = config

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions; returns metrics, each 0-d."""
        # One step of each optimizer along the gradient of these losses; `reference.py` states them again:
        #   entropy_loss = -log_alpha * (log_pi(a_new | s) + target_entropy).mean()
        #   y = r + discount * target_critics(s_next, a_next).amin(0)
        #   penalty = (log of the integral of exp critics(s, .) - critics(s, a)).mean(1)    # equation 4
        #   critic_loss = (0.5 * (critics(s, a) - y).square().mean(1) + alpha * penalty).sum()
        #   actor_loss = (ent_coef * log_pi(a_new | s) - critics(s, a_new).amin(0)).mean()
        #   the first updates: actor_loss = (ent_coef * log_pi(a_new | s) - log_pi(a | s)).mean()
        config, trained, remaining = self.config, self.trained, 1.0 - progress
        rate = config.learning_rate(remaining)
        own = rate if config.actor_learning_rate is None else config.actor_learning_rate(remaining)
        if trained.structure.changed() or trained.has_train_mode:
            trained.use_train_mode()
        shape = (2 * config.n_actions + 2, len(batch.reward), self.actor.scale.size)
        normal = torch.randn(shape, generator=self.generator, device=self.generator.device)
        clones = trained.updates < config.cloning_updates
        features = self.actor.encoder(batch.observation.features)
        if clones:
            chosen = self.actor.distribution(features)
            action, log_prob = chosen.transform(normal[0])
        else:
            (action, log_prob), vjp = self.actor.evaluate(features, normal[0])
        ent_coef, metrics = self.entropy.update(log_prob.detach(), own)
        metrics |= self._learn_values(batch, normal[1:], ent_coef, rate)
        trained.actor_optimizer.zero_grad()
        if clones:
            recorded = self.actor.scale.to_unit(batch.action)
            loss = (ent_coef * log_prob - chosen.log_prob(recorded)).mean()
            torch.autograd.backward(loss)
        else:
            with torch.no_grad():
                seen = self.critics.encoder(batch.observation.features)
            value, grad = self.critics.action_gradient(seen, action, mean_of_smallest)
            loss = ent_coef * log_prob.mean() - value
            vjp(-grad, (ent_coef / len(log_prob)).expand_as(log_prob))
        trained.actor_optimizer.step(own)
        trained.target.update(config.tau)
        trained.updates += 1
        return {**metrics, "train/actor_loss": loss.detach()}

    def _learn_values(self, batch: Transitions, normal: Tensor, ent_coef: Tensor, rate: float) -> dict[str, Tensor]:
        """Train the critics on N transitions, given normal numbers [2 n_actions + 1, N, A]; returns metrics, each 0-d."""
        actor, critics, rows = self.actor, self.critics, len(batch.reward)
        wanted, sampled, density = self._targets_and_samples(batch, normal, ent_coef)
        features = critics.encoder(batch.observation.features)
        every = torch.cat([actor.scale.to_unit(batch.action), sampled.flatten(0, 1)])
        # all actions of an observation in one pass, because products of large matrices are the fastest
        values, vjp = critics.evaluate(features.repeat(1 + len(sampled), 1), every)
        recorded, others = values[:, :rows], values[:, rows:, 0].reshape(len(values), len(sampled), rows)
        loss, grad = half_squared_error(recorded, wanted, weight=batch.weight)
        found = sampled_penalty(others, density, recorded.squeeze(-1), weight=batch.weight)
        penalty, (grad_others, grad_recorded) = found
        alpha, metrics = self.weight.update(penalty, rate)
        grads = [grad + alpha * grad_recorded.unsqueeze(-1), (alpha * grad_others).flatten(1).unsqueeze(-1)]
        self.trained.optimizer.zero_grad()
        vjp(torch.cat(grads, 1))
        self.trained.optimizer.step(rate)
        return {**metrics, "train/critic_loss": loss + alpha * penalty.sum(), "train/td_loss": loss}

    @torch.no_grad()
    def _targets_and_samples(
        self, batch: Transitions, normal: Tensor, ent_coef: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (targets of the critics [N, 1], sampled unit actions [S, N, A], their log-densities [S, N]).

        A third of the S samples is uniform, a third comes from the policy at s, and a third from that of `_following`.
        """
        actor, count = self.actor, self.config.n_actions
        now = actor.distribution(actor.encoder(batch.observation.features))
        following = self._following(batch, now)
        next_action, next_log_prob = following.transform(normal[0])
        target, seen = self.target.network, batch.next_observation.features
        next_values, _ = target.evaluate(target.encoder(seen), next_action)
        bonus = -ent_coef * next_log_prob if self.config.backup_entropy else torch.zeros_like(next_log_prob)
        wanted = clipped_double_q(next_values, bonus, batch.reward, batch.discount)
        uniform = torch.rand(normal[1 : count + 1].shape, generator=self.generator, device=self.generator.device)
        size = uniform.shape[-1]
        # unit actions are uniform over a cube with sides of length 2
        flat = torch.full(uniform.shape[:2], -size * math.log(2.0), device=uniform.device)
        mine, theirs = now.transform(normal[1 : count + 1]), following.transform(normal[count + 1 :])
        actions = torch.cat([2.0 * uniform - 1.0, mine[0], theirs[0]])
        return wanted, actions, torch.cat([flat, mine[1], theirs[1]])

    def _following(self, batch: Transitions, now: SquashedGaussian) -> SquashedGaussian:
        """The policy at s', for N transitions; at s where the episode terminated, as nothing is learned from s' there."""
        found = self.actor.distribution(self.actor.encoder(batch.next_observation.features))
        ended = (batch.discount == 0.0).unsqueeze(-1)
        mean, log_std = torch.where(ended, now.mean, found.mean), torch.where(ended, now.log_std, found.log_std)
        return SquashedGaussian(mean, log_std)

    @torch.no_grad()
    def state_values(self, observation: Observation) -> Tensor:
        """V [N]: the mean over all critics at the modes of the policy; see `rlsdk.interfaces.PolicyAbilities`."""
        action = self.actor.distribution_of(observation).mode()
        return self.critics.evaluate(self.critics.encoder(observation.features), action)[0].mean((0, -1))

    def state_dict(self) -> State:
        own = {"entropy": self.entropy.state_dict(), "weight": self.weight.state_dict()}
        return {**self.trained.state_dict(), **own}

    def load_state_dict(self, state: State, /) -> None:
        self.trained.load_state_dict(state)
        self.entropy.load_state_dict(state["entropy"])
        self.weight.load_state_dict(state.get("weight", {}))
