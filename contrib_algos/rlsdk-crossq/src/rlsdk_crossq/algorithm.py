"""The update of CrossQ: soft actor-critic without target networks. Source: Bhatt et al. 2024, arXiv:1902.05605."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rlsdk.errors import UsageError
from rlsdk.interfaces import State
from rlsdk.math import clipped_double_q, half_squared_error, td_error
from rlsdk.networks import ContinuousCritics, OwnCritics, SquashedActor, mean_of_smallest, mean_value
from rlsdk.records import Features, Metrics, Observation, Transitions
from rlsdk.runtime import count_in
from rlsdk.settings import require_noise_stays
from rlsdk.tree import map_tensors
from rlsdk.updates import UPDATES_BETWEEN_CHECKS, EntropyCoefficient, FlatOptimizer, random_subset
from rlsdk_crossq.config import CrossQConfig
from rlsdk_crossq.layers import batch_statistics


class CrossQUpdate:
    """Trains a squashed Gaussian actor, critics without target networks, and an entropy coefficient.

    One update trains the critics. Every `policy_delay`-th update of the whole training then trains the coefficient and the
    actor. If critics and actor share an encoder, only the actor's loss trains it.
    """

    def __init__(
        self,
        actor: SquashedActor,
        critics: ContinuousCritics | OwnCritics,
        config: CrossQConfig,
        generator: Generator,
    ) -> None:
        """`generator` samples the noise of the actor's actions, on the device of the networks."""
        self.actor, self.critics, self.config, self.generator = actor, critics, config, generator
        networks, rate = config.policy_kwargs, config.learning_rate(1.0)
        self.shared = critics.encoder is actor.encoder
        # an encoder that both share belongs to the actor's optimizer, else two optimizers would move it
        self.own = critics.ensemble if self.shared else critics
        choice, arguments = networks.optimizer_class, networks.optimizer_arguments
        self.actor_optimizer = FlatOptimizer(actor, choice, rate, arguments)
        self.optimizer = FlatOptimizer(self.own, choice, rate, arguments)
        target_entropy = config.target_entropy_for(actor.scale.size)
        self.entropy = EntropyCoefficient(config.ent_coef, target_entropy, rate, str(generator.device))
        self.updates = 0
        self.td_error: Tensor | None = None
        """The errors [N] of the last batch with importance weights, for prioritized buffers."""

    def reconfigure(self, config: CrossQConfig) -> None:
        """Use the settings of `config` from the next update on.

        Raises:
            UsageError: `action_noise` is set where it was None, or None where it was set, which needs another
                collecting policy.
            SettingsError: `ent_coef` is not an entropy coefficient.
        """
        before = self.config
        require_noise_stays(before.action_noise, config.action_noise)
        # a learned coefficient continues from its value unless the setting itself changed
        if config.ent_coef != before.ent_coef:
            self.entropy.begin(config.ent_coef)
        self.entropy.target_entropy = config.target_entropy_for(self.actor.scale.size)
        self.actor.resample_every = config.sde_period
        self.config = config

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions. The metric `train/actor_loss` exists only if this update trained the actor.

        Raises:
            UsageError: N is 1, and the networks have batch normalization.
        """
        rows = len(batch.reward)
        if rows < 2 and self.config.policy_kwargs.batch_norm:
            raise UsageError(
                "an update of one row: batch normalization needs the variance of at least 2; give batch_size = 2 or more"
            )
        # for layers of users: `BatchRenorm` does not depend on the mode
        self.actor.train()
        self.critics.train()
        self.updates += 1
        rate, trains_actor = self.config.learning_rate(1.0 - progress), self.updates % self.config.policy_delay == 0
        shape = (1 + trains_actor, rows, self.actor.scale.size)
        noise = torch.randn(shape, generator=self.generator, device=self.generator.device)
        alpha = self.entropy.value
        metrics = {"train/critic_loss": self._learn_values(batch, noise[0], alpha, rate), "train/ent_coef": alpha}
        if trains_actor:
            metrics |= self._learn_actions(batch.observation.features, noise[1], rate)
        # reading a number waits for a GPU, so not after every update
        if self.updates % UPDATES_BETWEEN_CHECKS == 0:
            self.entropy.warn_if_large(alpha)
        return metrics

    def _learn_values(self, batch: Transitions, noise: Tensor, alpha: Tensor, rate: float) -> Tensor:
        """Train the critics on N transitions, given noise [N, A] for the next actions; returns their loss, 0-d."""
        # One step along the gradient of this loss, in which the batch statistics of `critics` are differentiated too:
        #   q, q_next = critics([s, s_next], [action, a_next]).split(N)    # one pass, equation 3 of the paper
        #   y = r + discount * (q_next.amin(0) - alpha * log_pi_next)
        #   critic_loss = 0.5 * (q - y.detach()).square().mean(1).sum()
        actor, critics, rows = self.actor, self.critics, len(batch.reward)
        following = batch.next_observation.features
        # by running statistics: the actor has not learned from the next observations as a batch
        with torch.no_grad():
            (next_action, next_log_prob), _ = actor.evaluate(actor.encoder(following), noise)
        # in one pass: next actions come from another distribution, and the statistics must be those of the mixture
        both = map_tensors(lambda one, two: torch.cat([one, two]), batch.observation.features, following)
        action = torch.cat([actor.scale.to_unit(batch.action), next_action])
        # the actor's loss alone trains an encoder that both share
        with torch.set_grad_enabled(not self.shared):
            features = critics.encoder(both)
        with batch_statistics(critics):
            every, vjp = critics.evaluate(features, action)
        values, next_values = every[:, :rows], every[:, rows:]
        if self.config.policy_kwargs.subset_size is not None:
            next_values = next_values[random_subset(self.config.policy_kwargs, self.generator)]
        wanted = clipped_double_q(next_values, -alpha * next_log_prob, batch.reward, batch.discount)
        loss, grad = half_squared_error(values, wanted, weight=batch.weight)
        self.optimizer.zero_grad()
        # no gradient for the second half, which is part of the target
        vjp(torch.cat([grad, torch.zeros_like(grad)], dim=1))
        self.optimizer.step(rate)
        # errors are for priorities, which only batches with importance weights have
        self.td_error = None if batch.weight is None else td_error(values, wanted)
        return loss

    def _learn_actions(self, seen: Features, noise: Tensor, rate: float) -> dict[str, Tensor]:
        """Train the entropy coefficient and the actor on N observations, given noise [N, A]; returns metrics, each 0-d."""
        #   a, log_pi = actor(s, noise);  entropy_loss = -log_alpha * (log_pi.detach() + target_entropy).mean()
        #   actor_loss = (alpha * log_pi - critics(s, a).amin(0)).mean()    # critics by their running statistics
        actor, critics = self.actor, self.critics
        features = actor.encoder(seen)
        with batch_statistics(actor):
            (action, log_prob), vjp = actor.evaluate(features, noise)
        # the actor's loss uses alpha as it was before its own step, as the peer does
        alpha, metrics = self.entropy.update(log_prob, rate)
        with torch.no_grad():
            features = critics.encoder(seen)
        # with `subset_size` the mean of all critics: their minimum would be too pessimistic (arXiv:2101.05982)
        value_of = mean_of_smallest if self.config.policy_kwargs.subset_size is None else mean_value
        value, grad = critics.action_gradient(features, action, value_of)
        self.actor_optimizer.zero_grad()
        vjp(-grad, (alpha / len(log_prob)).expand_as(log_prob))
        self.actor_optimizer.step(rate)
        return {"train/actor_loss": alpha * log_prob.mean() - value, **metrics}

    @torch.no_grad()
    def state_values(self, observation: Observation) -> Tensor:
        """V [N]: the mean over all critics at the modes of the policy; see `rlsdk.interfaces.PolicyAbilities`."""
        # without noise the sample is the mode of the Gaussian before tanh
        noise = torch.zeros(len(observation.is_first), self.actor.scale.size, device=self.generator.device)
        (action, _), _ = self.actor.evaluate(self.actor.encoder(observation.features), noise)
        return self.critics.evaluate(self.critics.encoder(observation.features), action)[0].mean((0, -1))

    def state_dict(self) -> State:
        return {
            "critic": dict(self.own.state_dict()),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.optimizer.state_dict(),
            "entropy": self.entropy.state_dict(),
            "counters": {"updates": self.updates},
        }

    def load_state_dict(self, state: State, /) -> None:
        self.own.load_state_dict(state["critic"])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.optimizer.load_state_dict(state["critic_optimizer"])
        self.entropy.load_state_dict(state["entropy"])
        self.updates = count_in(state["counters"], "updates")
