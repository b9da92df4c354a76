"""The update of TD3 and DDPG. Source: Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Generator, Tensor

from rlsdk.kernels import Structure
from rlsdk.math.quantiles import td_error
from rlsdk.math.value_losses import clipped_double_q, first_value, squared_error
from rlsdk.networks.critics import ContinuousCritics
from rlsdk.networks.deterministic_actor import DeterministicActor, smoothed
from rlsdk.networks.modes import has_train_mode
from rlsdk.records import Metrics, Observation, Transitions
from rlsdk.runtime.stored import count_in
from rlsdk.settings.action_noise import ActionNoise, require_noise_stays
from rlsdk.settings.deterministic_actor_critic import DeterministicActorCriticNetworks
from rlsdk.settings.schedules import Schedule
from rlsdk.updates.optimizer import FlatOptimizer
from rlsdk.updates.states import DeterministicActorCriticState
from rlsdk.updates.target_network import TargetNetwork


class DeterministicSettings(Protocol):
    """The hyper-parameters of the update. DDPG: `policy_delay` 1, both noises 0, one critic."""

    @property
    def learning_rate(self) -> Schedule: ...
    @property
    def tau(self) -> float: ...
    @property
    def action_noise(self) -> ActionNoise | None: ...
    @property
    def policy_kwargs(self) -> DeterministicActorCriticNetworks: ...
    @property
    def policy_delay(self) -> int:
        """Updates of the critics per update of the actor and of the targets."""
        ...

    @property
    def target_policy_noise(self) -> float:
        """Deviation of the noise on the target actor's actions, in unit actions."""
        ...

    @property
    def target_noise_clip(self) -> float:
        """Bound of that noise."""
        ...


class DeterministicActorCritic:
    """Critics regressed on the smaller of their targets, and an actor that climbs the first one.

    The steps of one update, in this order: critics; then, in every `policy_delay`-th update of the whole training, the actor
    and the targets of both. The critics' encoder may be the actor's own, which then only the actor's loss trains.
    """

    def __init__(
        self,
        actor: DeterministicActor,
        critics: ContinuousCritics,
        config: DeterministicSettings,
        generator: Generator,
    ) -> None:
        """`generator`: of the target actions' noise, on the device of the networks."""
        self.actor, self.critics, self.config, self.generator = actor, critics, config, generator
        self.shared = critics.encoder is actor.encoder
        networks, rate = config.policy_kwargs, config.learning_rate(1.0)
        choice, arguments = networks.optimizer_class, networks.optimizer_kwargs
        trained = critics.ensemble if self.shared else critics
        self.actor_optimizer = FlatOptimizer(actor, choice, rate, arguments)
        self.critic_optimizer = FlatOptimizer(trained, choice, rate, arguments)
        self.actor_target, self.critic_target = TargetNetwork(actor), TargetNetwork(critics)
        self.structure, self.has_train_mode = Structure(actor, critics), False
        self.updates = 0
        self.td_error: Tensor | None = None
        """[N], of the last batch, for prioritised memories."""

    def reconfigure(self, config: DeterministicSettings) -> None:
        """Use new settings from the next update on.

        Raises:
            UsageError: `action_noise` becomes None or was None, which needs another policy for collecting.
        """
        require_noise_stays(self.config.action_noise, config.action_noise)
        self.config = config

    @torch.no_grad()
    def state_values(self, observation: Observation) -> Tensor:
        """V [N]: the mean of all critics for the policy's actions; see `rlsdk.interfaces.EstimatesValues`."""
        action = self.actor.unit_action(self.actor.encoder(observation.features))
        return self.critics.evaluate(self.critics.encoder(observation.features), action)[0].mean((0, -1))

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions; `train/actor_loss` is there when the actor was updated."""
        if self.structure.changed():
            self.has_train_mode = has_train_mode(self.actor, self.critics)
        if self.has_train_mode:
            self.actor.train()
            self.critics.train()
        rate = self.config.learning_rate(1.0 - progress)
        self.updates += 1
        metrics = {"train/critic_loss": self._update_critics(batch, rate)}
        if self.updates % self.config.policy_delay == 0:
            metrics["train/actor_loss"] = self._update_actor(batch, rate)
            self.actor_target.update(self.config.tau)
            self.critic_target.update(self.config.tau)
        return metrics

    @torch.no_grad()
    def _target(self, batch: Transitions) -> Tensor:
        """y [N, 1]: r + discount * min Q'(s', smoothed pi'(s')), equations 10 and 14."""
        config, observation = self.config, batch.next_observation.features
        actor, critics = self.actor_target.network, self.critic_target.network
        action = actor.unit_action(actor.encoder(observation))
        noise = torch.randn(action.shape, generator=self.generator, device=action.device)
        action = smoothed(action, noise, std=config.target_policy_noise, clip=config.target_noise_clip)
        values, _ = critics.evaluate(critics.encoder(observation), action)
        return clipped_double_q(values, torch.zeros_like(batch.reward), batch.reward, batch.discount)

    def _update_critics(self, batch: Transitions, rate: float) -> Tensor:
        """One step of the critics; their loss, 0-d."""
        target = self._target(batch)
        with torch.set_grad_enabled(not self.shared):
            features = self.critics.encoder(batch.observation.features)
        values, vjp = self.critics.evaluate(features, self.actor.scale.to_unit(batch.action))
        loss, grad = squared_error(values, target, weight=batch.weight)
        if batch.weight is not None:
            self.td_error = td_error(values, target)
        self.critic_optimizer.zero_grad()
        vjp(grad)
        self.critic_optimizer.step(rate)
        return loss

    def _update_actor(self, batch: Transitions, rate: float) -> Tensor:
        """One step of the actor up the first critic; its loss, 0-d: minus that value."""
        action, vjp = self.actor.evaluate(self.actor.encoder(batch.observation.features))
        with torch.no_grad():
            features = self.critics.encoder(batch.observation.features)
        value, grad = self.critics.action_gradient(features, action, first_value)
        self.actor_optimizer.zero_grad()
        vjp(-grad)
        self.actor_optimizer.step(rate)
        return -value

    def state_dict(self) -> DeterministicActorCriticState:
        return {
            "critic": dict(self.critics.ensemble.state_dict() if self.shared else self.critics.state_dict()),
            "critic_target": self.critic_target.state_dict(),
            "actor_target": self.actor_target.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
            "counters": {"updates": self.updates},
        }

    def load_state_dict(self, state: DeterministicActorCriticState, /) -> None:
        critics = self.critics.ensemble if self.shared else self.critics
        critics.load_state_dict(state["critic"])
        self.critic_target.load_state_dict(state["critic_target"])
        self.actor_target.load_state_dict(state["actor_target"])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        self.updates = count_in(state["counters"], "updates")
