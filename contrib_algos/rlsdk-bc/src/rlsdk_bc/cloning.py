"""The update of behaviour cloning. Source: Pomerleau 1988 (ALVINN); loss with entropy as Hussein et al. 2017, section 4.1."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch
from torch import Tensor

from rlsdk.buffers import rows_in_order
from rlsdk.interfaces import BuildContext, State
from rlsdk.networks import ActorCritic, evaluate_recorded
from rlsdk.records import Features, Metrics, Observation, Sequences, Transitions
from rlsdk.updates import FlatOptimizer, adam_arguments
from rlsdk_bc.config import BCConfig
from rlsdk_bc.data import Data
from rlsdk_bc.losses import action_loss, entropy_of

BatchT = TypeVar("BatchT", Transitions, Sequences[None])


class Cloning(Generic[BatchT]):
    """mean of -log pi(a|s) - ent_coef * H + l2_coef * sum w^2 / 2 + vf_coef * (V(s) - return)^2."""

    def __init__(self, policy: ActorCritic, config: BCConfig, data: Data | None, context: BuildContext) -> None:
        """`data`: None for an agent without a data set, which predicts."""
        self.policy, self.config, self.data, self.context = policy, config, data, context
        choice, arguments = config.policy_kwargs.optimizer_class, config.policy_kwargs.optimizer_kwargs
        rate = config.learning_rate(1.0)
        self.optimizer = FlatOptimizer(policy, choice, rate, adam_arguments(choice, arguments))

    def reconfigure(self, config: BCConfig) -> None:
        """Use new settings from the next update on."""
        self.config = config

    def update(self, batch: BatchT, *, progress: float) -> Metrics:
        """One gradient step on N transitions, or on sequences for a policy with a memory."""
        self.policy.refit()
        if self.policy.has_train_mode:
            self.policy.train()
        loss, metrics = self._loss(batch)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step(self.config.learning_rate(1.0 - progress))
        self._bound_deviation()
        if (std := self.policy.action_std()) is not None:
            metrics["train/std"] = std
        return metrics

    def _loss(self, batch: BatchT) -> tuple[Tensor, dict[str, Tensor]]:
        """(the loss, 0-d; its parts for the log)."""
        config = self.config
        if isinstance(batch, Sequences):
            steps, starts, _ = rows_in_order(batch)
            imitation, entropy, value = self.evaluate(steps.observation, steps.action, starts)
        else:
            imitation, entropy, value = self.evaluate(batch.observation, batch.action, None)
        loss = imitation.mean() - config.ent_coef * entropy.mean()
        metrics = {"train/imitation_loss": imitation.mean().detach(), "train/entropy_loss": -entropy.mean().detach()}
        if config.l2_coef:
            squares = torch.stack([parameter.square().sum() for parameter in self.policy.actor_parameters])
            loss = loss + config.l2_coef * 0.5 * squares.sum()
        if config.vf_coef and self.data is not None:
            error = (value - self.data.returns_of(batch)).square().mean()
            metrics["train/value_loss"] = error.detach()
            loss = loss + config.vf_coef * error
        return loss, {**metrics, "train/loss": loss.detach()}

    def evaluate(
        self, observation: Observation, action: Features, starts: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(loss of the action, entropy, value), each [N], of N recorded steps; `starts` bool [N]: where sequences begin."""
        distribution, value = evaluate_recorded(self.policy, observation, starts)
        internal, squared = self.policy.internal(action), self.config.loss == "squared_error"
        loss = action_loss(distribution, internal, squared=squared)
        return loss, entropy_of(distribution, internal, squared=squared), value

    @torch.no_grad()
    def held_out_loss(self) -> Tensor | None:
        """The mean loss of the actions of all held-out steps, 0-d; None where no episodes are held out."""
        if self.data is None or self.data.held_out is None:
            return None
        if self.policy.has_train_mode:
            self.policy.eval()
        found = [
            self.evaluate(self._seen(observation), action, starts)[0]
            for observation, action, starts in self.data.held_out_batches()
        ]
        return torch.cat(found).mean()

    def _seen(self, observation: Observation) -> Observation:
        """An observation of the data as the policy sees it: what the memory samples is normalised already, this is not."""
        features = self.context.observation_normalizer(observation.features)
        return Observation(features, observation.is_first, observation.action_mask)

    @torch.no_grad()
    def _bound_deviation(self) -> None:
        if self.config.loss == "likelihood":
            for name, parameter in self.policy.named_parameters():
                if name.endswith("log_std"):
                    parameter.clamp_(min=self.config.log_std_min)

    def state_dict(self) -> State:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
