"""The update of A2C: one gradient step on the whole rollout. Source: Mnih et al. 2016, arXiv:1602.01783."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from torch import Tensor

from rlsdk.kernels import KernelSlot, fixed_layers
from rlsdk.math import explained_variance
from rlsdk.networks import ActorCritic, ActorCriticCarry, Estimates
from rlsdk.records import Metrics, Rollout
from rlsdk.updates import (
    FlatOptimizer,
    LossTerms,
    Minibatches,
    PolicyBatch,
    PolicyKernels,
    adam_arguments,
    policy_batch,
    policy_kernels,
)
from rlsdk_a2c.config import A2CConfig

# the first three of `rlsdk.kernels.protocol.LOSSES`, in the same order
METRICS = (
    "train/policy_loss",
    "train/value_loss",
    "train/entropy_loss",
)


def optimizer_of(config: A2CConfig) -> tuple[str | Callable[..., Any], dict[str, object]]:
    """Return the optimizer and its arguments: the user's `optimizer_class`, the paper's RMSprop, or Adam."""
    choice, arguments = config.policy_kwargs.optimizer_class, config.policy_kwargs.optimizer_kwargs
    if choice is not None:
        return choice, adam_arguments(choice, arguments)
    if config.use_rms_prop:
        return "rmsprop", {"alpha": 0.99, "eps": config.rms_prop_eps, **(arguments or {})}
    return "adam", adam_arguments("adam", arguments)


class A2CState(TypedDict):
    """The state of the update that is saved to files."""

    optimizer: Mapping[str, object]


class AdvantageActorCritic:
    """Minimizes mean(-A log pi(a|s) + vf_coef (R - V(s))^2 - ent_coef H(pi)), section 4 and supplementary 8."""

    def __init__(self, network: ActorCritic, config: A2CConfig, num_envs: int) -> None:
        """`num_envs`: the number of environments, which are the columns of a rollout."""
        self.network, self.config, self.num_envs = network, config, num_envs
        network.stores_estimates = False
        choice, arguments = optimizer_of(config)
        self.optimizer = FlatOptimizer(network, choice, config.learning_rate(1.0), arguments)
        self._kernels = KernelSlot(self._make_kernels, network)

    def _make_kernels(self, hooked: bool) -> PolicyKernels:
        self.optimizer.zero_grad()  # makes the gradients of new parameters views of the optimizer's vector
        return policy_kernels(self.network, self.config.n_steps * self.num_envs, hooked=hooked)

    def reconfigure(self, config: A2CConfig) -> None:
        """Use new settings from the next update on."""
        self.config = config
        self._kernels.refit()

    @fixed_layers()
    def update(self, batch: Rollout[ActorCriticCarry, Estimates], *, progress: float) -> Metrics:
        """Take one gradient step on a rollout. Metrics are 0-d."""
        config, kernels = self.config, self._kernels()
        rows = kernels.evaluator.prepared(policy_batch(batch, self.network, gamma=config.gamma, lam=config.gae_lambda))
        if self.network.has_train_mode:
            self.network.train()
        terms = LossTerms(None, None, config.ent_coef, config.vf_coef, config.normalize_advantage)
        seen = self._learn(rows, terms, config.learning_rate(1.0 - progress))
        metrics = dict(zip(METRICS, seen.unbind(), strict=False))
        metrics["train/explained_variance"] = explained_variance(rows.value, rows.target)
        std = self.network.action_std()
        return metrics if std is None else {**metrics, "train/std": std}

    def _learn(self, rows: PolicyBatch, terms: LossTerms, rate: float) -> Tensor:
        """Make a gradient step; return the means named in `rlsdk.kernels.protocol.LOSSES`, [6]."""
        norm, kernels = self.config.max_grad_norm, self._kernels.kernel
        if kernels.steps is not None and (step := self.optimizer.next_steps(rate, norm)) is not None:
            return kernels.steps(rows, Minibatches(), terms, step)[0]
        now, vjp = kernels.evaluator.evaluate(rows)
        seen, grads = kernels.loss(rows, now, terms)
        self.optimizer.zero_grad()
        vjp(*grads)
        self.optimizer.step(rate, norm)
        return seen

    def state_dict(self) -> A2CState:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: A2CState, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
