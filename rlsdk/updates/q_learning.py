"""Q-learning with a target network, for one value or several quantiles per action.

Sources: Mnih et al. 2015, doi:10.1038/nature14236 (DQN); van Hasselt et al. 2016, arXiv:1509.06461 (double Q-learning);
Dabney et al. 2017, arXiv:1710.10044 (quantiles).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.interfaces import State
from rlsdk.kernels.factory import graphed
from rlsdk.kernels.protocol import Learned
from rlsdk.math.values import greedy_target, taken_values, td_error
from rlsdk.networks.discrete_values import DiscreteValuePolicy
from rlsdk.records import Metrics, Transitions
from rlsdk.runtime.process import count_in
from rlsdk.settings.off_policy import QLearningConfig
from rlsdk.updates.continuous import TargetNetwork, ValueLoss
from rlsdk.updates.optimizer import FlatOptimizer

COUNTERS = ("target_updates", "since_target", "counted")


ConfigT = TypeVar("ConfigT", bound=QLearningConfig)


def optimizer_arguments(config: QLearningConfig) -> Mapping[str, object]:
    """The setting `optimizer_kwargs`, unchanged; an empty mapping if it is None."""
    return config.policy_kwargs.optimizer_kwargs or {}


class QLearning(Generic[ConfigT]):
    """Trains the values of the actions taken towards r + discount * (the target network's value of the greedy next
    action).

    If an action consists of several choices, one network has separate values for each. The loss is then the mean over
    choices. These are the branches of Tavakoli et al. 2018, arXiv:1711.08946, each with a separate target.
    """

    def __init__(
        self,
        policy: DiscreteValuePolicy,
        config: ConfigT,
        loss: ValueLoss,
        *,
        num_envs: int = 1,
        arguments: Callable[[ConfigT], Mapping[str, object]] = optimizer_arguments,
    ) -> None:
        """Create the update.

        Args:
            policy: the network of values that also acts.
            config: the settings.
            loss: the loss of the predicted values.
            num_envs: the number of environments: a vector step counts as many environment steps.
            arguments: returns the arguments of the optimizer, given the settings.
        """
        self.policy, self.config, self.loss, self.num_envs = policy, config, loss, num_envs
        self.target = TargetNetwork(policy)
        self._arguments = arguments
        choice, rate = config.policy_kwargs.optimizer_class, config.learning_rate(1.0)
        self.optimizer = FlatOptimizer(policy, choice, rate, arguments(config))
        self.target_updates = self.since_target = self.counted = 0
        self.td_error: Tensor | None = None
        """The errors [N] of the last batch with importance weights, for prioritized buffers."""
        # in place: the policy's kernels and CUDA graphs read this tensor
        policy.epsilon.fill_(config.exploration_initial_eps)
        self._warn_of_short_interval()

    def _warn_of_short_interval(self) -> None:
        interval = self.config.target_update_interval
        if self.num_envs > interval:
            warnings.warn(
                f"target_update_interval = {interval} is less than one step of {self.num_envs} environments: the target network"
                f" is updated after every vector step, every {self.num_envs} environment steps",
                stacklevel=2,
            )

    def reconfigure(self, config: ConfigT) -> None:
        """Use the settings of `config` from the next round on."""
        self.optimizer.optimizer.param_groups[0].update(self._arguments(config))
        # later the schedule has set it, and the new schedule counts from the next step
        if not self.counted:
            self.policy.epsilon.fill_(config.exploration_initial_eps)
        shorter = config.target_update_interval < self.config.target_update_interval
        self.config = config
        if shorter:
            self._warn_of_short_interval()

    def policy_replaced(self) -> None:
        """Copy the policy to the target network; see `rlsdk.interfaces.AlgorithmAbilities`."""
        self.target.update(1.0)

    def collected(self, env_steps: int, progress: float) -> None:
        """Reduce the exploration and, every `target_update_interval` environment steps, update the target network.

        It is called after every vector step.
        """
        self.policy.epsilon.fill_(self.config.exploration_rate(progress))
        # never negative: a continued training may begin with fewer steps than the last count
        self.since_target += max(0, env_steps - self.counted)
        self.counted = env_steps
        # the interval in whole vector steps, rounded down
        interval = max(self.config.target_update_interval // self.num_envs, 1) * self.num_envs
        due, self.since_target = divmod(self.since_target, interval)
        if due:  # several due updates, as in `train`, equal one with a larger tau
            tau = self.config.tau
            self.target.update(tau if due == 1 else 1.0 - (1.0 - tau) ** due)
            self.target_updates += due

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions."""
        if self.policy.has_train_mode:
            self.policy.train()
        return self._finished(self._learn_batch(batch, self.config.learning_rate(1.0 - progress)))

    def update_several(self, batches: Transitions, count: int, *, progress: float) -> Iterator[Metrics]:
        """See `rlsdk.interfaces.AlgorithmAbilities`. The target network does not change in between, so it is evaluated once."""
        size = len(batches.reward) // count
        parts = tree.split(batches, size)
        if self.config.double_q or self.policy.has_train_mode or batches.reward.is_cuda:  # GPUs replay whole updates
            for batch in parts:
                yield self.update(batch, progress=progress)
            return
        # the target network is fixed in these updates, so one evaluation serves all batches
        rate, targets = self.config.learning_rate(1.0 - progress), torch.split(self._target(batches, count), size, 1)
        for batch, target in zip(parts, targets, strict=True):
            yield self._finished(self._learn(batch, target, rate))

    def _finished(self, learned: Learned) -> Metrics:
        """Note the errors of an update, and return its metrics."""
        metrics, self.td_error = learned
        return {**metrics, "rollout/exploration_rate": self.policy.epsilon.clone()}

    @graphed(*COUNTERS, "td_error")
    def _learn_batch(self, batch: Transitions, rate: float) -> Learned:
        """Compute the targets and make one step; returns what `_learn` returns."""
        return self._learn(batch, self._target(batch), rate)

    def _learn(self, batch: Transitions, target: Tensor, rate: float) -> Learned:
        """Make one step towards targets [choices, N, K]. Returns metrics, and errors [N] if there are importance weights."""
        policy = self.policy
        values, vjp = policy.evaluate(batch.observation.features)
        current, taken_vjp = taken_values(values, policy.from_environment(batch.action), policy.sizes)
        loss, grad = self.loss(current, target, weight=batch.weight)
        self.optimizer.zero_grad()
        vjp(taken_vjp(grad))
        self.optimizer.step(rate, self.config.max_grad_norm)
        return {"train/loss": loss}, None if batch.weight is None else td_error(current, target)

    @torch.no_grad()
    def _target(self, batch: Transitions, count: int = 1) -> Tensor:
        """The targets y [choices, N, K] of the rows of `count` batches.

        With double Q-learning the online network selects the next action (arXiv:1509.06461, eq. 4).
        """
        following, sizes, network = batch.next_observation, self.policy.sizes, self.target.network
        one = count == 1
        next_values = (
            network.evaluate(following.features)[0] if one else network.values_of_several(following.features, count)
        )
        selector = self.policy.evaluate(following.features)[0] if self.config.double_q else next_values
        mask = following.action_mask
        return greedy_target(next_values, batch.reward, batch.discount, sizes, mask=mask, selector=selector)

    def state_dict(self) -> State:
        return {
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "counters": {name: getattr(self, name) for name in COUNTERS},
        }

    def load_state_dict(self, state: State, /) -> None:
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        counters = [count_in(state["counters"], name) for name in COUNTERS]
        self.target_updates, self.since_target, self.counted = counters
