"""The update of behavior cloning. Source: Pomerleau 1988 (ALVINN); loss with entropy as Hussein et al. 2017, section 4.1."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from rlsdk.buffers import rows_in_order
from rlsdk.interfaces import BuildContext, State
from rlsdk.kernels import KernelSlot, fixed_layers
from rlsdk.networks import ActorCritic
from rlsdk.records import Features, Metrics, Observation, Sequences, Transitions
from rlsdk.updates import (
    Evaluator,
    FlatOptimizer,
    LossTerms,
    PolicyBatch,
    adam_arguments,
    evaluator_of,
    policy_loss_of,
)
from rlsdk_bc.config import BCConfig
from rlsdk_bc.data import Data
from rlsdk_bc.losses import action_loss, entropy_of

BatchT = TypeVar("BatchT", Transitions, Sequences[None])


METRICS = ("train/imitation_loss", "train/value_loss", "train/entropy_loss", "train/loss")


class Cloning(Generic[BatchT]):
    """Minimizes the mean of -log pi(a|s) - ent_coef * H + l2_coef * sum w^2 / 2 + vf_coef * (V(s) - return)^2."""

    def __init__(self, policy: ActorCritic, config: BCConfig, data: Data | None, context: BuildContext) -> None:
        """`data`: None for an agent without a data set, which can only predict."""
        self.policy, self.config, self.data, self.context = policy, config, data, context
        choice, arguments = config.policy_kwargs.optimizer_class, config.policy_kwargs.optimizer_kwargs
        rate = config.learning_rate(1.0)
        self.optimizer = FlatOptimizer(policy, choice, rate, adam_arguments(choice, arguments))
        self._kernel = KernelSlot(self._make_kernel, policy)

    def _make_kernel(self, hooked: bool) -> Evaluator:
        self.optimizer.zero_grad()  # makes the gradients of new parameters views of the optimizer's vector
        self._loss, names = policy_loss_of(self.policy), self.policy.named_parameters()
        self._deviations = [parameter for name, parameter in names if name.endswith("log_std")]
        rows = self.config.batch_size * (self.config.sequence_length if self.policy.recurrent else 1)
        return evaluator_of(self.policy, rows, hooked=hooked)

    def reconfigure(self, config: BCConfig) -> None:
        """Use new settings from the next update on."""
        self.config = config
        self._kernel.refit()

    @fixed_layers()
    def update(self, batch: BatchT, *, progress: float) -> Metrics:
        """Take one gradient step on N transitions, or on sequences if the policy is recurrent. Metrics are 0-d."""
        config, kernel = self.config, self._kernel()
        if self.policy.has_train_mode:
            self.policy.train()
        observation, action, starts = _steps_of(batch)
        target = self.data.returns_of(batch) if config.vf_coef and self.data is not None else None
        rows = _recorded_batch(self.policy, observation, action, target, starts)
        self.optimizer.zero_grad()
        found = self._squared_error(rows) if config.loss == "squared_error" else self._likelihood(kernel, rows)
        metrics = dict(zip(METRICS, found, strict=True))
        if config.l2_coef:
            metrics["train/loss"] = metrics["train/loss"] + self._decay()
        if target is None:
            del metrics["train/value_loss"]
        self.optimizer.step(config.learning_rate(1.0 - progress))
        self._bound_deviation()
        std = self.policy.action_std()
        return metrics if std is None else {**metrics, "train/std": std}

    def _likelihood(self, kernel: Evaluator, rows: PolicyBatch) -> tuple[Tensor, ...]:
        """Compute `METRICS`, 0-d each, and the gradient of the loss into the parameters."""
        terms = LossTerms(None, None, self.config.ent_coef, self.config.vf_coef, normalize_advantage=False)
        now, vjp = kernel.evaluate(kernel.prepared(rows))
        seen, grads = self._loss(rows, now, terms)
        vjp(*grads)
        imitation, value, entropy, _, _, loss = seen.unbind()
        return imitation, value, entropy, loss

    def _squared_error(self, rows: PolicyBatch) -> tuple[Tensor, ...]:
        """Do the same as `_likelihood`, for the squared error of the mean."""
        imitation, entropy, value = self.evaluate(rows)
        imitation, entropy, error = imitation.mean(), entropy.mean(), (value - rows.target).square().mean()
        loss = imitation - self.config.ent_coef * entropy + self.config.vf_coef * error
        torch.autograd.backward(loss)
        return imitation.detach(), error.detach(), -entropy.detach(), loss.detach()

    @torch.no_grad()
    def _decay(self) -> Tensor:
        """Return the L2 penalty of the actor's parameters, 0-d, and add its gradient to theirs."""
        penalty = torch.zeros((), device=self.optimizer.flat.device)
        for parameter in self.policy.actor_parameters:
            if parameter.grad is not None:
                parameter.grad.add_(parameter, alpha=self.config.l2_coef)
            penalty += 0.5 * self.config.l2_coef * parameter.square().sum()
        return penalty

    def evaluate(self, rows: PolicyBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return (loss of the action, entropy, value), each [N], of N recorded steps."""
        distribution, value = self.policy.evaluate(rows.observation, rows.memory, rows.starts)
        internal, squared = self.policy.internal(rows.action), self.config.loss == "squared_error"
        loss = action_loss(distribution, internal, squared=squared)
        return loss, entropy_of(distribution, internal, squared=squared), value

    @torch.no_grad()
    def held_out_loss(self) -> Tensor | None:
        """The mean loss of the actions of all held-out steps, 0-d; None if no episodes are held out."""
        if self.data is None or self.data.held_out is None:
            return None
        if self.policy.has_train_mode:
            self.policy.eval()
        found = [
            self.evaluate(_recorded_batch(self.policy, self._seen(observation), action, starts=starts))[0]
            for observation, action, starts in self.data.held_out_batches()
        ]
        return torch.cat(found).mean()

    def _seen(self, observation: Observation) -> Observation:
        """Normalize an observation of held-out steps. Sampled batches are normalized already, held-out steps are not."""
        features = self.context.observation_normalizer(observation.features)
        return Observation(features, observation.is_first, observation.action_mask)

    @torch.no_grad()
    def _bound_deviation(self) -> None:
        if self.config.loss == "likelihood":
            for parameter in self._deviations:
                parameter.clamp_(min=self.config.log_std_min)

    def state_dict(self) -> State:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


def _steps_of(batch: Transitions | Sequences[None]) -> tuple[Observation, Features, Tensor | None]:
    """Return (observations [N, ..], actions [N, ..], whether a row begins a sequence: bool [N] or None) of a batch."""
    if isinstance(batch, Transitions):
        return batch.observation, batch.action, None
    steps, starts, _ = rows_in_order(batch)
    return steps.observation, steps.action, starts


def _recorded_batch(
    network: ActorCritic,
    observation: Observation,
    action: Features,
    target: Tensor | None = None,
    starts: Tensor | None = None,
) -> PolicyBatch:
    """Return N recorded rows with all advantages 1. The loss of `policy_loss_of` without `clip` is then -log pi(a|s).

    Args:
        network: the policy and its values.
        observation: [N, ..], as the policy receives it.
        action: [N, ..], in environment units.
        target: float [N], the regression targets of the values; None: 0.
        starts: bool [N], True where a sequence of consecutive rows begins, with the initial recurrent state; None:
            every row is a sequence.
    """
    first = torch.ones_like(observation.is_first) if starts is None else starts
    # no carry was recorded, so every sequence has to start from the initial one
    seen = Observation(observation.features, observation.is_first | first, observation.action_mask)
    carry, count = network.initial_carry(len(first)), len(first)
    nothing: Any = ()  # a placeholder: the log-probability of the recorded action is not known
    target = torch.zeros(count, device=first.device) if target is None else target
    ones = torch.ones(count, device=first.device)
    return PolicyBatch(seen, action, nothing, target, ones, target, (carry.actor, carry.critic), first)
