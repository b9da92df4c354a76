"""The update of A2C: one gradient step on the whole rollout. Source: Mnih et al. 2016, arXiv:1602.01783."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import torch

from rlsdk.kernels import KernelSlot
from rlsdk.math.surrogate import explained_variance, mean_of, normalized, value_error, value_error_grad
from rlsdk.networks import ActorCritic, ActorCriticCarry, Estimates
from rlsdk.records import Metrics, Rollout
from rlsdk.updates import FlatOptimizer, adam_arguments, evaluator_of, policy_batch
from rlsdk.updates.evaluation import Evaluator
from rlsdk_a2c.config import A2CConfig


def optimizer_of(config: A2CConfig) -> tuple[str | Callable[..., Any], dict[str, object]]:
    """The optimiser of the network, and its arguments: one of the user's own, the paper's RMSprop, or Adam."""
    choice, arguments = config.policy_kwargs.optimizer_class, config.policy_kwargs.optimizer_kwargs
    if choice is not None:
        return choice, adam_arguments(choice, arguments)
    if config.use_rms_prop:
        return "rmsprop", {"alpha": 0.99, "eps": config.rms_prop_eps, **(arguments or {})}
    return "adam", adam_arguments("adam", arguments)


class A2CState(TypedDict):
    """What files hold of the update."""

    optimizer: Mapping[str, object]


class AdvantageActorCritic:
    """Minimises mean(-A log pi(a|s) + vf_coef (R - V(s))^2 - ent_coef H(pi)), section 4 and supplementary 8."""

    def __init__(self, network: ActorCritic, config: A2CConfig, num_envs: int) -> None:
        """`num_envs`: columns of a rollout."""
        self.network, self.config, self.num_envs = network, config, num_envs
        choice, arguments = optimizer_of(config)
        self.optimizer = FlatOptimizer(network, choice, config.learning_rate(1.0), arguments)
        self._kernel = KernelSlot(self._make_kernel, network)

    def _make_kernel(self, hooked: bool) -> Evaluator:
        self.optimizer.zero_grad()  # gradients of new parameters have their place in its vector
        return evaluator_of(self.network, self.config.n_steps * self.num_envs, hooked=hooked)

    def reconfigure(self, config: A2CConfig) -> None:
        """Use new settings from the next update on."""
        self.config = config
        self._kernel.refit()

    def update(self, batch: Rollout[ActorCriticCarry, Estimates], *, progress: float) -> Metrics:
        """Learn from a rollout."""
        config, kernel = self.config, self._kernel()
        rows = kernel.prepared(policy_batch(batch, self.network, gamma=config.gamma, lam=config.gae_lambda))
        if self.network.has_train_mode:
            self.network.train()
        weight = rows.weight
        advantage = normalized(rows.advantage, weight) if config.normalize_advantage else rows.advantage
        now, vjp = kernel.evaluate(rows)
        share = torch.full_like(advantage, 1.0 / len(rows)) if weight is None else weight / weight.sum()
        errors = value_error(now.value, rows.value, rows.target, None)
        value_grad = value_error_grad(now.value, rows.value, rows.target, None)
        self.optimizer.zero_grad()
        vjp(
            -advantage * share,
            -config.ent_coef * share if config.ent_coef else None,
            config.vf_coef * value_grad * share,
        )
        self.optimizer.step(config.learning_rate(1.0 - progress), config.max_grad_norm)
        metrics = {
            "train/policy_loss": mean_of(-advantage * now.log_prob, weight),
            "train/value_loss": mean_of(errors, weight),
            "train/entropy_loss": mean_of(-now.entropy, weight),
            "train/explained_variance": explained_variance(rows.value, rows.target),
        }
        std = self.network.action_std()
        return metrics if std is None else {**metrics, "train/std": std}

    def state_dict(self) -> A2CState:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: A2CState, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
