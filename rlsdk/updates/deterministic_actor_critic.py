"""The update of TD3 and DDPG. Source: Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rlsdk.kernels import graphed
from rlsdk.kernels.protocol import Learnt
from rlsdk.math.value_losses import clipped_double_q, squared_error
from rlsdk.networks.critics import ContinuousCritics
from rlsdk.networks.deterministic_actor import DeterministicActor, smoothed
from rlsdk.networks.own_networks import OwnCritics
from rlsdk.records import Metrics, Observation, Transitions
from rlsdk.settings.action_noise import require_noise_stays
from rlsdk.settings.deterministic_actor_critic import DeterministicSettings
from rlsdk.updates.states import DeterministicActorCriticState
from rlsdk.updates.target_network import TargetNetwork, TrainedCritics


class DeterministicActorCritic:
    """Trains critics towards the smallest value of the target critics, and an actor that maximises the value of the
    first critic.

    One update trains the critics. Every `policy_delay`-th update of the whole training then trains the actor and moves
    both target networks. If critics and actor share an encoder, only the actor's loss trains it.
    """

    def __init__(
        self,
        actor: DeterministicActor,
        critics: ContinuousCritics | OwnCritics,
        config: DeterministicSettings,
        generator: Generator,
    ) -> None:
        """`generator` samples the noise of the target actions, on the device of the networks."""
        self.actor, self.critics, self.config, self.generator = actor, critics, config, generator
        self.trained = TrainedCritics(actor, critics, config.policy_kwargs, config.learning_rate(1.0))
        self.actor_target, self.critic_target = TargetNetwork(actor), self.trained.target

    @property
    def td_error(self) -> Tensor | None:
        """Errors [N] of the last batch with importance weights; see `rlsdk.interfaces.HasTdError`."""
        return self.trained.td_error

    def reconfigure(self, config: DeterministicSettings) -> None:
        """Use the settings of `config` from the next update on.

        Raises:
            UsageError: `action_noise` is set where it was None, or None where it was set, which needs another
                collecting policy.
        """
        require_noise_stays(self.config.action_noise, config.action_noise)
        self.config = config

    def policy_replaced(self) -> None:
        """Copy the actor to the target actor; see `rlsdk.interfaces.FollowsPolicy`."""
        self.actor_target.update(1.0)

    @torch.no_grad()
    def state_values(self, observation: Observation) -> Tensor:
        """V [N]: the mean over all critics at the policy's actions; see `rlsdk.interfaces.EstimatesValues`."""
        action, _ = self.actor.evaluate(self.actor.encoder(observation.features))
        return self.critics.evaluate(self.critics.encoder(observation.features), action)[0].mean((0, -1))

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions. The metric `train/actor_loss` exists only if this update trained the actor."""
        self.trained.begin()
        rate = self.config.learning_rate(1.0 - progress)
        self.trained.updates += 1
        shape = len(batch.reward), self.actor.scale.size
        noise = torch.randn(shape, generator=self.generator, device=self.generator.device)
        trains_actor = self.trained.updates % self.config.policy_delay == 0
        metrics, self.trained.td_error = self._learn((batch, noise), rate, trains_actor)
        return metrics

    @graphed("updates", "td_error")
    def _learn(self, inputs: tuple[Transitions, Tensor], rate: float, trains_actor: bool) -> Learnt:
        """Train the critics, and perhaps the actor, on N transitions, given noise [N, A]; returns metrics and TD errors."""
        batch, noise = inputs
        critic_loss, error = self.trained.step(batch, self._target(batch, noise), squared_error, rate)
        metrics = {"train/critic_loss": critic_loss}
        if trains_actor:
            metrics["train/actor_loss"] = self._update_actor(batch, rate)
            self.actor_target.update(self.config.tau)
            self.critic_target.update(self.config.tau)
        return metrics, error

    @torch.no_grad()
    def _target(self, batch: Transitions, noise: Tensor) -> Tensor:
        """The targets y [N, 1] = r + discount * min Q'(s', smoothed pi'(s')), equations 10 and 14."""
        config, observation = self.config, batch.next_observation.features
        actor, critics = self.actor_target.network, self.critic_target.network
        action, _ = actor.evaluate(actor.encoder(observation))
        action = smoothed(action, noise, std=config.target_policy_noise, clip=config.target_noise_clip)
        values, _ = critics.evaluate(critics.encoder(observation), action)
        return clipped_double_q(values, torch.zeros_like(batch.reward), batch.reward, batch.discount)

    def _update_actor(self, batch: Transitions, rate: float) -> Tensor:
        """Train the actor by one step; return its loss, 0-d."""
        action, vjp = self.actor.evaluate(self.actor.encoder(batch.observation.features))
        loss, grad = self.actor_loss(batch, action)
        self.trained.actor_optimizer.zero_grad()
        vjp(grad)
        self.trained.actor_optimizer.step(rate)
        return loss

    def actor_loss(self, batch: Transitions, action: Tensor) -> tuple[Tensor, Tensor]:
        """(loss of the actor 0-d, its gradient with respect to the actor's actions [N, A], scaled to [-1, 1]).

        The loss is minus the mean value of the first critic. A subclass may override it.
        """
        with torch.no_grad():
            features = self.critics.encoder(batch.observation.features)
        value, grad = self.critics.first_action_gradient(features, action)
        return -value, -grad

    def state_dict(self) -> DeterministicActorCriticState:
        return {**self.trained.state_dict(), "actor_target": self.actor_target.state_dict()}

    def load_state_dict(self, state: DeterministicActorCriticState, /) -> None:
        self.trained.load_state_dict(state)
        self.actor_target.load_state_dict(state["actor_target"])
