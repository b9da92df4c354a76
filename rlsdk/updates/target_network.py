"""Target networks (slowly updated copies of online networks), and the training of critics for continuous actions."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from rlsdk.kernels import Structure
from rlsdk.math.quantiles import td_error
from rlsdk.networks.architecture import architecture
from rlsdk.networks.critics import ContinuousCritics, ValueOf
from rlsdk.networks.deterministic_actor import DeterministicActor
from rlsdk.networks.modes import has_train_mode
from rlsdk.networks.own_networks import OwnCritics
from rlsdk.networks.squashed_actor import SquashedActor
from rlsdk.records import Transitions
from rlsdk.runtime.stored import count_in
from rlsdk.settings.networks import NetworkConfig
from rlsdk.updates.critic_loss import ValueLoss
from rlsdk.updates.optimizer import FlatOptimizer
from rlsdk.updates.states import TrainedCriticsState

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class TargetNetwork(Generic[NetworkT]):
    """A target network: `network` is a copy of `online` without gradients. `update` moves it towards `online`."""

    def __init__(self, online: NetworkT) -> None:
        self.online, self.network = online, deepcopy(online).eval()
        self.network.requires_grad_(False)
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._structure, self._own = Structure(online), Structure(self.network)
        self._has_buffers = any(True for _ in online.buffers())

    def _pair(self) -> None:
        """Pair the parameters of both networks in their order. If layers of the online network were replaced, copy it again."""
        if architecture(self.network) != architecture(self.online):
            self.network = deepcopy(self.online).eval()
            self._own = Structure(self.network)
        self.network.requires_grad_(False)
        self._pairs = list(zip(self.network.parameters(), self.online.parameters(), strict=True))
        self._has_buffers = any(True for _ in self.online.buffers())

    @torch.no_grad()
    def update(self, tau: float) -> None:
        """Compute target += tau * (online - target). Buffers, such as batch-norm statistics, are copied without averaging."""
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


class TrainedCritics:
    """Critics of continuous actions and the optimisers of critics and actor, with the critics' target network.

    If critics and actor share an encoder, only the actor's loss trains it.
    """

    def __init__(
        self,
        actor: SquashedActor | DeterministicActor,
        critics: ContinuousCritics | OwnCritics,
        config: NetworkConfig,
        rate: float,
    ) -> None:
        """`rate` is the first learning rate."""
        self.actor, self.critics, self.shared = actor, critics, critics.encoder is actor.encoder
        self.own = critics.ensemble if self.shared else critics
        choice, arguments = config.optimizer_class, config.optimizer_kwargs
        self.actor_optimizer = FlatOptimizer(actor, choice, rate, arguments)
        self.optimizer = FlatOptimizer(self.own, choice, rate, arguments)
        self.target = TargetNetwork(critics)
        self.structure, self.has_train_mode = Structure(actor, critics), False
        self.updates = 0
        self.td_error: Tensor | None = None
        """The errors [N] of the last batch with importance weights, for prioritised buffers."""

    def begin(self) -> None:
        """Set the networks to training mode, if one of their modules depends on the mode."""
        if self.structure.changed():
            self.has_train_mode = has_train_mode(self.actor, self.critics)
        if self.has_train_mode:
            self.actor.train()
            self.critics.train()

    def step(self, batch: Transitions, target: Tensor, loss_of: ValueLoss, rate: float) -> tuple[Tensor, Tensor | None]:
        """Train the critics by one step towards targets [N, M].

        Returns:
            (their loss, 0-d; the TD errors [N] if the batch has importance weights, else None).
        """
        with torch.set_grad_enabled(not self.shared):
            features = self.critics.encoder(batch.observation.features)
        values, vjp = self.critics.evaluate(features, self.actor.scale.to_unit(batch.action))
        loss, grad = loss_of(values, target, weight=batch.weight)
        self.optimizer.zero_grad()
        vjp(grad)
        self.optimizer.step(rate)
        return loss, None if batch.weight is None else td_error(values, target)

    def action_gradient(self, batch: Transitions, action: Tensor, value_of: ValueOf) -> tuple[Tensor, Tensor]:
        """(value 0-d, its gradient with respect to the actor's actions [N, A]). The actor maximises this value."""
        with torch.no_grad():
            features = self.critics.encoder(batch.observation.features)
        return self.critics.action_gradient(features, action, value_of)

    def state_dict(self) -> TrainedCriticsState:
        return {
            "critic": dict(self.own.state_dict()),
            "critic_target": self.target.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.optimizer.state_dict(),
            "counters": {"updates": self.updates},
        }

    def load_state_dict(self, state: TrainedCriticsState) -> None:
        self.own.load_state_dict(state["critic"])
        self.target.load_state_dict(state["critic_target"])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.optimizer.load_state_dict(state["critic_optimizer"])
        self.updates = count_in(state["counters"], "updates")
