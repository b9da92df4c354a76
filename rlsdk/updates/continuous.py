"""Updates of actors and critics of continuous actions. Sources: Haarnoja et al. 2018, arXiv:1812.05905, algorithm 1;
Fujimoto et al. 2018, arXiv:1802.09477.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Generic, Protocol, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk.interfaces import State
from rlsdk.kernels import Structure
from rlsdk.kernels.factory import graphed
from rlsdk.kernels.protocol import Learned
from rlsdk.math.values import clipped_double_q, squared_error, td_error
from rlsdk.networks.continuous import DeterministicActor, SquashedActor, smoothed
from rlsdk.networks.critics import ContinuousCritics, OwnCritics, mean_value
from rlsdk.networks.layers import architecture, has_train_mode
from rlsdk.records import Metrics, Observation, Transitions
from rlsdk.runtime.process import count_in
from rlsdk.settings.action_noise import require_noise_stays
from rlsdk.settings.actor_critic import ActorAndCriticsConfig, NetworkConfig
from rlsdk.settings.off_policy import DeterministicSettings, SoftActorCriticConfig, parse_entropy_coefficient
from rlsdk.updates.optimizer import FlatOptimizer

ConfigT = TypeVar("ConfigT", bound=SoftActorCriticConfig)
NetworkT = TypeVar("NetworkT", bound=nn.Module)
CriticsT = TypeVar("CriticsT", bound=ContinuousCritics | OwnCritics)
ConfigT_contra = TypeVar("ConfigT_contra", contravariant=True)


Chosen = Tensor | None
"""The indices of the critics that make the target, int64 [M]; None: all."""


def random_subset(networks: ActorAndCriticsConfig, generator: Generator) -> Tensor:
    """Draw the indices of `subset_size` critics, int64 [M]: arXiv:2101.05982, algorithm 1."""
    return torch.randperm(networks.n_critics, generator=generator, device=generator.device)[: networks.subset_size]


class SoftActorCritic(Generic[ConfigT]):
    """Trains a squashed Gaussian actor, critics with a target network, and an entropy coefficient that is fixed or
    learned.

    The order in one update is: entropy coefficient, critics, actor, target network. If critics and actor share an
    encoder, only the actor's loss trains it.
    """

    def __init__(
        self,
        actor: SquashedActor,
        critics: ContinuousCritics | OwnCritics,
        objective: CriticLoss[ConfigT],
        config: ConfigT,
        generator: Generator,
    ) -> None:
        """`objective` has the target and the losses of the critics. `generator` samples the noise of actions, on the device of
        the networks."""
        self.actor, self.critics, self.objective, self.config = actor, critics, objective, config
        self.generator, rate = generator, config.learning_rate(1.0)
        target_entropy = config.target_entropy_for(actor.scale.size)
        self.entropy = EntropyCoefficient(config.ent_coef, target_entropy, rate, str(generator.device))
        self.trained = TrainedCritics(actor, critics, config.policy_kwargs, rate)

    @property
    def td_error(self) -> Tensor | None:
        """Errors [N] of the last batch with importance weights; see `rlsdk.interfaces.AlgorithmAbilities`."""
        return self.trained.td_error

    def reconfigure(self, config: ConfigT) -> None:
        """Use the settings of `config` from the next update on.

        Raises:
            UsageError: `action_noise` is set where it was None, or None where it was set, which needs another
                collecting policy.
            SettingsError: `ent_coef` is not an entropy coefficient.
        """
        require_noise_stays(self.config.action_noise, config.action_noise)
        # a learned coefficient continues from its value unless the setting itself changed
        if config.ent_coef != self.config.ent_coef:
            self.entropy.begin(config.ent_coef)
        self.entropy.target_entropy = config.target_entropy_for(self.actor.scale.size)
        self.actor.resample_every = config.sde_period
        self.objective.reconfigure(config)
        self.config = config

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions: one gradient step of each part, then an update of the target network."""
        trained = self.trained
        if trained.structure.changed() or trained.has_train_mode:
            trained.use_train_mode()
        rate, shape = self.config.learning_rate(1.0 - progress), (2, len(batch.reward), self.actor.scale.size)
        # drawn here, because a CUDA graph of `_learn` would repeat the same numbers
        noise = torch.randn(shape, generator=self.generator, device=self.generator.device)
        networks = self.config.policy_kwargs
        chosen = None if networks.subset_size is None else random_subset(networks, self.generator)
        moves_target = trained.updates % self.config.target_update_interval == 0
        trains_actor = (trained.updates + 1) % self.config.policy_delay == 0
        metrics, trained.td_error = self._learn((batch, noise, chosen), rate, moves_target, trains_actor)
        trained.updates += 1
        # reading a number waits for a GPU, so not after every update
        if trained.updates % UPDATES_BETWEEN_CHECKS == 0:
            self.entropy.warn_if_large(metrics["train/ent_coef"])
        return metrics

    @graphed("updates", "td_error", "warned")
    def _learn(
        self, inputs: tuple[Transitions, Tensor, Chosen], rate: float, moves_target: bool, trains_actor: bool
    ) -> Learned:
        """Learn from N transitions; `noise` [2, N, A] is for two evaluations of the actor. Returns metrics and TD errors."""
        # For SAC and a learned alpha, this makes one step of each optimizer along the gradient of these losses. Kernels
        # compute them (`evaluate`, and `loss` of the objective); the contract clause `formula.reference` compares both:
        #   a, log_pi = actor(s, noise[0]);  a_next, log_pi_next = actor(s_next, noise[1])
        #   y = r + discount * (target_critics(s_next, a_next).amin(0) - alpha * log_pi_next)
        #   entropy_loss = -log_alpha * (log_pi.detach() + target_entropy).mean()    # arXiv:1812.05905, eq. 17
        #   critic_loss = 0.5 * (critics(s, action) - y.detach()).square().mean(1).sum()    # eq. 5
        #   actor_loss = (alpha * log_pi - critics(s, a).amin(0)).mean()    # eq. 9
        (batch, noise, chosen), actor, critics, trained = inputs, self.actor, self.critics, self.trained
        seen, scale = batch.observation.features, actor.scale
        if trains_actor:
            (action, log_prob), vjp = actor.evaluate(actor.encoder(seen), noise[0])
            # the target and the actor's loss use alpha as it was before its own step, as the peers do
            alpha, metrics = self.entropy.update(log_prob, rate)
        else:
            alpha = self.entropy.value
            metrics = {"train/ent_coef": alpha}
        with torch.no_grad():
            observation, target = batch.next_observation.features, trained.target.network
            (next_action, next_log_prob), _ = actor.evaluate(actor.encoder(observation), noise[1])
            next_values, _ = target.evaluate(target.encoder(observation), next_action)
            next_values = next_values if chosen is None else next_values[chosen]
            wanted = self.objective.target(next_values, next_log_prob, alpha, batch)
        # the actor's loss alone trains an encoder that both share
        with torch.set_grad_enabled(not trained.shared):
            features = critics.encoder(seen)
        values, critic_vjp = critics.evaluate(features, scale.to_unit(batch.action))
        critic_loss, critic_grad = self.objective.loss(values, wanted, weight=batch.weight)
        trained.optimizer.zero_grad()
        critic_vjp(critic_grad)
        trained.optimizer.step(rate)
        if trains_actor:
            # encoded again, because the step has changed the encoder; the actor climbs the value of the new critics
            with torch.no_grad():
                features = critics.encoder(seen)
            value_of = self.objective.actor_value if chosen is None else mean_value
            value, grad = critics.action_gradient(features, action, value_of)
            trained.actor_optimizer.zero_grad()
            vjp(-grad, (alpha / len(log_prob)).expand_as(log_prob))  # gradient of mean(alpha * log pi - Q), eq. 9
            trained.actor_optimizer.step(rate)
            metrics = {"train/actor_loss": alpha * log_prob.mean() - value, **metrics}
        if moves_target:
            trained.target.update(self.config.tau)
        # errors are for priorities, which only batches with importance weights have
        error = None if batch.weight is None else td_error(values, wanted)
        return {"train/critic_loss": critic_loss, **metrics}, error

    @torch.no_grad()
    def state_values(self, observation: Observation) -> Tensor:
        """V [N]: the mean over all critics at the modes of the policy; see `rlsdk.interfaces.PolicyAbilities`."""
        action = self.actor.distribution_of(observation).mode()
        return self.critics.evaluate(self.critics.encoder(observation.features), action)[0].mean((0, -1))

    def state_dict(self) -> State:
        return {**self.trained.state_dict(), "entropy": self.entropy.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.trained.load_state_dict(state)
        self.entropy.load_state_dict(state["entropy"])


UPDATES_BETWEEN_CHECKS = 1000
"""The number of updates between two checks of the size of a learned entropy coefficient."""
LARGEST_COEFFICIENT = 1000.0
"""A warning is given above this value: such a coefficient outweighs the returns of almost any task."""


class EntropyCoefficient:
    """The entropy coefficient alpha: fixed, or learned so that the policy's entropy approaches a target.

    The loss of a learned one is -log_alpha * mean(log_prob + target_entropy): arXiv:1812.05905, eq. 17, with log_alpha
    in place of alpha.
    """

    def __init__(self, value: str | float, target_entropy: float, learning_rate: float, device: str) -> None:
        initial, self.learned = parse_entropy_coefficient(value)
        self.target_entropy = target_entropy
        # a tensor, so that fixed and learned coefficients are used in the same way, also in CUDA graphs
        self.fixed = torch.tensor(initial, device=device)
        # the logarithm, so that a gradient step cannot make alpha negative
        self.log_alpha = nn.Parameter(torch.full((1,), math.log(initial) if self.learned else 0.0, device=device))
        self.optimizer = FlatOptimizer([self.log_alpha], "adam", learning_rate)
        self.warned = False

    @property
    def value(self) -> Tensor:
        """Alpha as it is now, 0-d, without graph."""
        return self.log_alpha.detach().exp().squeeze(0) if self.learned else self.fixed

    @torch.no_grad()
    def update(self, log_prob: Tensor, learning_rate: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (alpha before this update, 0-d; metrics), given log-densities [N] of the policy's own actions."""
        if not self.learned:
            return self.fixed, {"train/ent_coef": self.fixed}
        alpha = self.log_alpha.exp().squeeze(0)
        # in closed form: the loss is linear in log_alpha, so autograd would be slower for the same number
        gradient = -(log_prob + self.target_entropy).mean()
        loss = self.log_alpha.squeeze(0) * gradient
        self.optimizer.gradients.copy_(gradient)
        self.optimizer.step(learning_rate)
        return alpha, {"train/ent_coef": alpha, "train/ent_coef_loss": loss}

    def warn_if_large(self, alpha: Tensor) -> None:
        """Warn once if a learned alpha, 0-d, is very large."""
        if self.learned and not self.warned and float(alpha) > LARGEST_COEFFICIENT:
            self.warned = True
            warnings.warn(
                f"the learned ent_coef has grown to {float(alpha):,.0f}: the entropy outweighs the returns; set ent_coef to"
                " a number such as 0.1, lower target_entropy, or scale the rewards (normalize=True)",
                stacklevel=2,
            )

    @torch.no_grad()
    def begin(self, value: str | float) -> None:
        """Use another `ent_coef` from now on. A learned one begins at its initial value.

        Raises:
            SettingsError: `value` is not an entropy coefficient.
        """
        initial, self.learned = parse_entropy_coefficient(value)
        # a new tensor, because metrics of earlier updates still hold the old one
        self.fixed = torch.full_like(self.fixed, initial)
        if self.learned:
            self.log_alpha.fill_(math.log(initial))

    def state_dict(self) -> State:
        return {"log_alpha": self.log_alpha.detach().clone(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State) -> None:
        with torch.no_grad():
            # in place, because the optimizer holds this memory
            self.log_alpha.copy_(state["log_alpha"])
        self.optimizer.load_state_dict(state["optimizer"])


class DeterministicActorCritic:
    """Trains critics towards the smallest value of the target critics, and an actor that maximizes the value of the
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
        self.actor_target = TargetNetwork(actor)

    @property
    def td_error(self) -> Tensor | None:
        """Errors [N] of the last batch with importance weights; see `rlsdk.interfaces.AlgorithmAbilities`."""
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
        """Copy the actor to the target actor; see `rlsdk.interfaces.AlgorithmAbilities`."""
        self.actor_target.update(1.0)

    @torch.no_grad()
    def state_values(self, observation: Observation) -> Tensor:
        """V [N]: the mean over all critics at the policy's actions; see `rlsdk.interfaces.PolicyAbilities`."""
        action, _ = self.actor.evaluate(self.actor.encoder(observation.features))
        return self.critics.evaluate(self.critics.encoder(observation.features), action)[0].mean((0, -1))

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions. The metric `train/actor_loss` exists only if this update trained the actor."""
        trained = self.trained
        if trained.structure.changed() or trained.has_train_mode:
            trained.use_train_mode()
        rate = self.config.learning_rate(1.0 - progress)
        trained.updates += 1
        shape = len(batch.reward), self.actor.scale.size
        # drawn here, because a CUDA graph of `_learn` would repeat the same numbers
        noise = torch.randn(shape, generator=self.generator, device=self.generator.device)
        trains_actor = trained.updates % self.config.policy_delay == 0
        networks = self.config.policy_kwargs
        chosen = None if networks.subset_size is None else random_subset(networks, self.generator)
        metrics, trained.td_error = self._learn((batch, noise, chosen), rate, trains_actor)
        return metrics

    @graphed("updates", "td_error")
    def _learn(self, inputs: tuple[Transitions, Tensor, Chosen], rate: float, trains_actor: bool) -> Learned:
        """Train the critics, and perhaps the actor, on N transitions, given noise [N, A]; returns metrics and TD errors."""
        # One step of each optimizer along the gradient of these losses (arXiv:1802.09477, algorithm 1). Kernels compute
        # them (`evaluate`); the contract clause `formula.reference` of TD3 compares both:
        #   a_next = (target_actor(s_next) + (std * noise).clamp(-clip, clip)).clamp(-1, 1)    # eq. 14
        #   y = r + discount * target_critics(s_next, a_next).amin(0)    # eq. 10
        #   critic_loss = (critics(s, action) - y).square().mean(1).sum()
        #   actor_loss = -critics(s, actor(s))[0].mean()    # only every `policy_delay` updates
        (batch, noise, chosen), actor, critics, trained = inputs, self.actor, self.critics, self.trained
        wanted = self._target(batch, noise, chosen)
        # the actor's loss alone trains an encoder that both share
        with torch.set_grad_enabled(not trained.shared):
            features = critics.encoder(batch.observation.features)
        values, critic_vjp = critics.evaluate(features, actor.scale.to_unit(batch.action))
        critic_loss, critic_grad = squared_error(values, wanted, weight=batch.weight)
        trained.optimizer.zero_grad()
        critic_vjp(critic_grad)
        trained.optimizer.step(rate)
        metrics = {"train/critic_loss": critic_loss}
        if trains_actor:
            action, vjp = actor.evaluate(actor.encoder(batch.observation.features))
            metrics["train/actor_loss"], grad = self.actor_loss(batch, action)
            trained.actor_optimizer.zero_grad()
            vjp(grad)
            trained.actor_optimizer.step(rate)
            self.actor_target.update(self.config.tau)
            trained.target.update(self.config.tau)
        # errors are for priorities, which only batches with importance weights have
        return metrics, None if batch.weight is None else td_error(values, wanted)

    @torch.no_grad()
    def _target(self, batch: Transitions, noise: Tensor, chosen: Chosen) -> Tensor:
        """The targets y [N, 1] = r + discount * min Q'(s', smoothed pi'(s')), equations 10 and 14."""
        config, observation = self.config, batch.next_observation.features
        actor, critics = self.actor_target.network, self.trained.target.network
        # the target actor, not the trained one: else errors of the critics would feed their own targets
        action, _ = actor.evaluate(actor.encoder(observation))
        action = smoothed(action, noise, std=config.target_policy_noise, clip=config.target_noise_clip)
        values, _ = critics.evaluate(critics.encoder(observation), action)
        values = values if chosen is None else values[chosen]
        # a bonus of 0: TD3 has no entropy term
        return clipped_double_q(values, torch.zeros_like(batch.reward), batch.reward, batch.discount)

    def actor_loss(self, batch: Transitions, action: Tensor) -> tuple[Tensor, Tensor]:
        """(loss of the actor 0-d, its gradient with respect to the actor's actions [N, A], scaled to [-1, 1]).

        The loss is minus the mean value of the first critic. A subclass may override it.
        """
        with torch.no_grad():
            # the actor's gradient goes through the action only, not through the encoder of the critics
            features = self.critics.encoder(batch.observation.features)
        value, grad = self.critics.action_gradient(features, action, first=True)
        return -value, -grad

    def state_dict(self) -> State:
        return {**self.trained.state_dict(), "actor_target": self.actor_target.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.trained.load_state_dict(state)
        self.actor_target.load_state_dict(state["actor_target"])


class TargetNetwork(Generic[NetworkT]):
    """A target network: `network` is a copy of `online` without gradients. `update` moves it towards `online`."""

    def __init__(self, online: NetworkT) -> None:
        # in evaluation mode: dropout and batch statistics would make the targets noisy
        self.online, self.network = online, deepcopy(online).eval()
        self.network.requires_grad_(False)
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._structure, self._own = Structure(online), Structure(self.network)
        self._has_buffers = any(True for _ in online.buffers())

    def _pair(self) -> None:
        """Pair the parameters of both networks in their order. If layers of the online network were replaced, copy it again."""
        # layers that were replaced have no counterpart to average with
        if architecture(self.network) != architecture(self.online):
            self.network = deepcopy(self.online).eval()
            self._own = Structure(self.network)
        self.network.requires_grad_(False)
        self._pairs = list(zip(self.network.parameters(), self.online.parameters(), strict=True))
        self._has_buffers = any(True for _ in self.online.buffers())

    @torch.no_grad()
    def update(self, tau: float) -> None:
        """Compute target += tau * (online - target). Buffers, such as batch-norm statistics, are copied without averaging."""
        # no `or`: both have to take note of the change
        if self._structure.changed() | self._own.changed():
            self._pair()
        for mine, theirs in self._pairs:
            mine.lerp_(theirs, tau)
        if self._has_buffers:
            for mine, theirs in zip(self.network.buffers(), self.online.buffers(), strict=True):
                mine.copy_(theirs)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.network.load_state_dict(state)


class TrainedCritics(Generic[CriticsT]):
    """Critics of continuous actions and the optimizers of critics and actor, with the critics' target network.

    If critics and actor share an encoder, only the actor's loss trains it.
    """

    def __init__(
        self,
        actor: nn.Module,
        critics: CriticsT,
        config: NetworkConfig,
        rate: float,
    ) -> None:
        """`actor` has an `encoder`; `rate` is the first learning rate."""
        self.actor, self.critics, self.shared = actor, critics, critics.encoder is actor.encoder
        # an encoder that both share belongs to the actor's optimizer, else two optimizers would move it
        self.own = critics.ensemble if self.shared else critics
        choice, arguments = config.optimizer_class, config.optimizer_kwargs
        self.actor_optimizer = FlatOptimizer(actor, choice, rate, arguments)
        self.optimizer = FlatOptimizer(self.own, choice, rate, arguments)
        self.target = TargetNetwork(critics)
        self.structure, self.has_train_mode = Structure(actor, critics), False
        self.updates = 0
        self.td_error: Tensor | None = None
        """The errors [N] of the last batch with importance weights, for prioritized buffers."""

    def use_train_mode(self) -> None:
        """Set actor and critics to train mode for an update, if one of their modules depends on the mode."""
        # visiting the modules of a small network takes longer than its forward pass: call this after a change of `structure`
        self.has_train_mode = has_train_mode(self.actor, self.critics)
        if self.has_train_mode:
            self.actor.train()
            self.critics.train()

    def state_dict(self) -> State:
        return {
            "critic": dict(self.own.state_dict()),
            "critic_target": self.target.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.optimizer.state_dict(),
            "counters": {"updates": self.updates},
        }

    def load_state_dict(self, state: State) -> None:
        self.own.load_state_dict(state["critic"])
        self.target.load_state_dict(state["critic_target"])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.optimizer.load_state_dict(state["critic_optimizer"])
        self.updates = count_in(state["counters"], "updates")


class ValueLoss(Protocol):
    """A loss of predicted values."""

    def __call__(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (loss 0-d, its gradient with respect to `values`).

        Args:
            values: predictions [C, N, K] of C critics, or for C choices of an action.
            target: targets whose shape fits the values.
            weight: the weight of each row, float [N]; None = 1.
        """
        ...


class CriticLoss(Protocol[ConfigT_contra]):
    """The critic's part of a soft actor-critic algorithm: its target and its losses.

    Each of C critics predicts K values: one value of the return, or K quantiles of it.
    """

    def target(self, next_values: Tensor, next_log_prob: Tensor, alpha: Tensor, batch: Transitions) -> Tensor:
        """Return the regression targets of the critics, float [N, M].

        Args:
            next_values: predictions of the target critics at (s', a'), float [C, N, K].
            next_log_prob: log pi(a'|s') of the policy's next action, float [N].
            alpha: the entropy coefficient, 0-d.
            batch: contains `reward` and `discount`, float [N]; `discount` is 0 where the episode terminated.
        """
        ...

    def loss(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (loss 0-d, its gradient with respect to `values`).

        Args:
            values: predictions [C, N, K] of C critics.
            target: [N, M].
            weight: the weight of each row, float [N]; None = 1.
        """
        ...

    def actor_value(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return (mean Q(s, pi(s)) 0-d, its gradient with respect to `values` [C, N, K]). The actor maximizes this mean."""
        ...

    def reconfigure(self, config: ConfigT_contra) -> None:
        """Use the settings of `config` from the next update on."""
        ...
