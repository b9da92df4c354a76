"""The update of CQL for choices: Q-learning with the penalty. Source: Kumar et al. 2020, arXiv:2006.04779, section 3.2."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.interfaces import State
from rlsdk.math import greedy_target, smooth_l1, taken_values
from rlsdk.networks import DiscreteValuePolicy
from rlsdk.records import Metrics, Transitions
from rlsdk.updates import EntropyCoefficient, FlatOptimizer, TargetNetwork
from rlsdk_cql.config import CQLConfig
from rlsdk_cql.penalty import PenaltyWeight, exact_penalty


class ConservativeQLearning:
    """Trains the values of recorded choices towards those of the greedy next choices, with the penalty.

    The target network moves a little after every update. If an action consists of several choices, each has separate values,
    and losses are means over choices.
    """

    def __init__(self, policy: DiscreteValuePolicy, config: CQLConfig, device: str) -> None:
        self.critics, self.config = policy, config
        networks, rate = config.policy_kwargs, config.learning_rate(1.0)
        self.optimizer = FlatOptimizer(policy, networks.optimizer_class, rate, networks.optimizer_kwargs)
        self.target = TargetNetwork(policy)
        self.weight = PenaltyWeight(config.alpha, config.threshold, rate, device)
        # no exploration: the agent collects nothing
        policy.epsilon.zero_()
        # raises an error: choices do not use the coefficient, but files of agents hold it
        EntropyCoefficient(config.ent_coef, 0.0, 1.0, "cpu")

    def reconfigure(self, config: CQLConfig) -> None:
        """Use new settings from the next update on. Raises SettingsError: `ent_coef` is not an entropy coefficient."""
        EntropyCoefficient(config.ent_coef, 0.0, 1.0, "cpu")
        self.weight.reconfigure(config.alpha, config.threshold)
        self.config = config

    def policy_replaced(self) -> None:
        """Copy the policy to the target network; see `rlsdk.interfaces.AlgorithmAbilities`."""
        self.target.update(1.0)

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions; returns metrics, each 0-d."""
        #   y = r + discount * target(s_next)[argmax of q(s_next)]
        #   loss = huber(q(s)[a] - y).mean() + alpha * (logsumexp(q(s)) - q(s)[a]).mean()
        policy, rate = self.critics, self.config.learning_rate(1.0 - progress)
        if policy.has_train_mode:
            policy.train()
        wanted, action = self._target(batch), policy.from_environment(batch.action)
        values, vjp = policy.evaluate(batch.observation.features)
        taken, taken_vjp = taken_values(values, action, policy.sizes)
        loss, grad = smooth_l1(taken, wanted, weight=batch.weight)
        mask = batch.observation.action_mask
        penalty, grad_penalty = exact_penalty(values.squeeze(-1), action, policy.sizes, mask, weight=batch.weight)
        alpha, metrics = self.weight.update(penalty, rate)
        self.optimizer.zero_grad()
        vjp(taken_vjp(grad) + (alpha * grad_penalty).unsqueeze(-1))
        self.optimizer.step(rate)
        self.target.update(self.config.tau)
        return {**metrics, "train/loss": loss + alpha * penalty, "train/td_loss": loss}

    @torch.no_grad()
    def _target(self, batch: Transitions) -> Tensor:
        """The targets y [choices, N, 1]."""
        following, sizes = batch.next_observation, self.critics.sizes
        next_values, _ = self.target.network.evaluate(following.features)
        selector = self.critics.evaluate(following.features)[0] if self.config.double_q else next_values
        mask = following.action_mask
        return greedy_target(next_values, batch.reward, batch.discount, sizes, mask=mask, selector=selector)

    def state_dict(self) -> State:
        return {
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "weight": self.weight.state_dict(),
        }

    def load_state_dict(self, state: State, /) -> None:
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.weight.load_state_dict(state.get("weight", {}))
