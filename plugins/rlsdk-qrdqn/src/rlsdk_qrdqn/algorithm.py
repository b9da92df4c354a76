"""One update of QR-DQN; reads like the paper's algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlsdk.math.quantiles import quantile_huber, td_error
from rlsdk.math.scratch import Scratch
from rlsdk.math.stored import count_in
from rlsdk.records import Metrics, Transitions
from rlsdk.updates import FlatOptimizer, TargetNetwork
from rlsdk_qrdqn.config import QRDQNConfig
from rlsdk_qrdqn.loss import greedy_action, of_action, places, quantile_target
from rlsdk_qrdqn.policy import QuantilePolicy


class QuantileRegression:
    """Regresses the quantiles of the action taken on those of the greedy next action.

    Where an action is several choices, each has quantiles of its own on one network, and the loss is the mean over choices
    (the branches of Tavakoli et al. 2018, arXiv:1711.08946, each with its own target).
    """

    def __init__(self, policy: QuantilePolicy, config: QRDQNConfig, *, num_envs: int = 1) -> None:
        self.policy, self.config = policy, config
        self.target = TargetNetwork(policy)
        choice, rate = config.policy_kwargs.optimizer_class, config.learning_rate(1.0)
        self.optimizer = FlatOptimizer(policy, choice, rate, optimizer_arguments(config))
        self.num_envs = num_envs
        self.target_updates = self.since_target = self.counted = 0
        self.scratch = Scratch()
        self.td_error: torch.Tensor | None = None  # [N] of the last batch, for prioritised memories

    def reconfigure(self, config: QRDQNConfig) -> None:
        """Use new settings from the next round on."""
        self.optimizer.optimizer.param_groups[0].update(optimizer_arguments(config))
        if not self.counted:
            self.policy.epsilon.fill_(config.exploration_initial_eps)
        self.config = config

    def collected(self, env_steps: int, progress: float) -> None:
        """Called after every vector step: explore less, and move the target every so many environment steps."""
        self.policy.epsilon.fill_(self.config.exploration_rate(progress))
        self.since_target += max(0, env_steps - self.counted)
        self.counted = env_steps
        # whole vector steps, rounded down
        interval = max(self.config.target_update_interval // self.num_envs, 1) * self.num_envs
        due, self.since_target = divmod(self.since_target, interval)
        if due:  # several at once, as `train` may count them, are one with a larger step
            tau = self.config.tau
            self.target.update(tau if due == 1 else 1.0 - (1.0 - tau) ** due)
            self.target_updates += due

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions."""
        config, policy = self.config, self.policy
        if policy.mode_matters:
            policy.train()
        following, sizes = batch.next_observation, policy.sizes
        with torch.no_grad():
            ahead, _ = self.target.network.evaluated(following.features)
            judge = policy.evaluated(following.features)[0] if config.double_q else ahead
            best = greedy_action(judge, following.action_mask, sizes)
            target = quantile_target(ahead, best, batch.reward, batch.discount, sizes)
        taken = places(policy.from_environment(batch.action), sizes)
        quantiles, pull = policy.evaluated(batch.observation.features)
        current = of_action(quantiles, taken)
        loss, gradient = quantile_huber(
            current, target, sum_over_quantiles=True, weight=batch.weight, scratch=self.scratch
        )
        if batch.weight is not None:
            self.td_error = td_error(current, target)
        slope = torch.zeros_like(quantiles)
        slope.flatten(0, 1).index_copy_(0, taken, gradient.flatten(0, 1))
        self.optimizer.zero_grad()
        pull(slope)
        self.optimizer.step(config.learning_rate(1.0 - progress), config.max_grad_norm)
        return {"train/loss": loss, "rollout/exploration_rate": policy.epsilon.clone()}

    def state_dict(self) -> Mapping[str, Any]:
        """The target, the optimiser and the count of target updates; the weights are the policy's."""
        return {
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "counters": {
                "target_updates": self.target_updates,
                "since_target": self.since_target,
                "counted": self.counted,
            },
        }

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        counters = {name: count_in(state["counters"], name) for name in ("target_updates", "since_target", "counted")}
        self.target_updates, self.since_target = counters["target_updates"], counters["since_target"]
        self.counted = counters["counted"]


def optimizer_arguments(config: QRDQNConfig) -> dict[str, Any]:
    """`optimizer_kwargs`; without a class Adam's epsilon is the paper's, which goes with its batches of 32, unless it is
    given."""
    networks = config.policy_kwargs
    own = {"eps": 0.01 / config.batch_size} if networks.optimizer_class is None else {}
    return {**own, **(networks.optimizer_kwargs or {})}
