"""The update of ACER, on sequences of steps. Source: Wang et al. 2017, arXiv:1611.01224, algorithm 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlsdk.interfaces import State
from rlsdk.records import Metrics, Sequences
from rlsdk.tree import map_tensors
from rlsdk.updates import FlatOptimizer, TargetNetwork, adam_arguments
from rlsdk_acer.config import ACERConfig
from rlsdk_acer.network import ACERNetwork, Carry
from rlsdk_acer.policy_gradient import Objective, States, divergence, objective, projected
from rlsdk_acer.targets import Estimated, retrace


def optimizer_of(config: ACERConfig) -> tuple[str | Callable[..., Any], dict[str, object]]:
    """Return the optimizer and its arguments: the user's `optimizer_class`, or the paper's RMSprop."""
    choice, arguments = config.policy_kwargs.optimizer_class, config.policy_kwargs.optimizer_kwargs
    if choice is not None:
        return choice, adam_arguments(choice, arguments)
    return "rmsprop", {"alpha": config.rprop_alpha, "eps": config.rprop_epsilon, **(arguments or {})}


class ActorCriticWithReplay:
    """Maximizes the policy's objective in a trust region, and minimizes .5 (Q_ret - Q)^2. All terms are means over states."""

    allows_lag = True
    """Importance weights use the probabilities of the policy that collected the steps; see
    `rlsdk.interfaces.AlgorithmAbilities.allows_lag`."""

    def __init__(self, network: ACERNetwork, config: ACERConfig) -> None:
        self.network, self.config = network, config
        choice, arguments = optimizer_of(config)
        self.optimizer = FlatOptimizer(network, choice, config.learning_rate(1.0), arguments)
        self.average = TargetNetwork(network)

    def reconfigure(self, config: ACERConfig) -> None:
        """Use new settings from the next update on."""
        self.config = config

    def policy_replaced(self) -> None:
        """Copy the network's parameters to the average policy, after the policy was replaced."""
        self.average.update(1.0)

    def update(self, batch: Sequences[Carry], *, progress: float) -> Metrics:
        """Take one gradient step on sequences [T, N], fresh or replayed. Their extras hold `probs`, the behavior policy."""
        network, config = self.network, self.config
        if network.has_train_mode:
            network.train()
        latent, memory = network.unrolled(batch)
        mask = map_tensors(lambda leaf: leaf.flatten(0, 1), batch.steps.observation.action_mask)
        probs, values, vjp = network.evaluate(latent, mask)
        weight = batch.loss_mask.flatten() / batch.loss_mask.sum().clamp(min=1)
        states = self._states(batch, memory, (probs, values))
        found = objective(states, config.correction_term, config.ent_coef)
        z, metrics = self._step_of_policy(batch, states, found, mask)
        error = states.target - states.of_action(states.values)
        grad = (-config.q_coef * error * weight).unsqueeze(-1)
        self.optimizer.zero_grad()
        vjp(-z * weight.unsqueeze(-1), torch.zeros_like(values).scatter_(-1, states.action.unsqueeze(-1), grad))
        self.optimizer.step(config.learning_rate(1.0 - progress), config.max_grad_norm)
        self.average.update(1.0 - config.alpha)
        means = {"policy_loss": -found.truncated, "correction_loss": -found.correction, "q_loss": 0.5 * error.square()}
        means |= {"entropy_loss": -found.entropy, "ratio": states.of_action(states.ratios), **metrics}
        sums = torch.stack(list(means.values())) @ weight
        return {f"train/{name}": value for name, value in zip(means, sums.unbind(), strict=True)}

    def _states(self, batch: Sequences[Carry], memory: Carry, outputs: tuple[Tensor, Tensor]) -> States:
        """The states of a batch, [T * N], with their Retrace targets. `outputs`: their pi(.|x) and Q(x, .), each [T * N, A]."""
        steps, shape = batch.steps, batch.steps.reward.shape
        goes_on = batch.continues
        last = (~goes_on & ~steps.terminated).flatten().nonzero().squeeze(-1)
        after = torch.zeros_like(steps.reward.flatten())
        after[last] = self.network.values_after(batch, memory, last)
        action = steps.action.long().flatten() - self.network.start
        states = States(outputs[0], steps.extras["probs"].flatten(0, 1), action, outputs[1], after)
        known = [states.of_action(states.values), states.value, after, states.of_action(states.ratios)]
        estimated = Estimated(*(values.view(shape) for values in known))
        return replace(states, target=retrace(steps.reward, batch.discount, goes_on, estimated).flatten())

    def _step_of_policy(
        self, batch: Sequences[Carry], states: States, found: Objective, mask: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (the gradient of the objective with respect to probabilities [T * N, A], metrics [T * N]). With `trust_region`
        the gradient is projected. `mask`: bool [T * N, A]."""
        if not self.config.trust_region:
            return found.gradient, {}
        average = self.average.network
        probs = average.policy(average.unrolled(batch)[0], mask).probs
        z, active = projected(found.gradient, states.probs, probs, self.config.delta)
        return z, {"divergence": divergence(probs, states.probs), "trust_region_active": active.to(z.dtype)}

    def state_dict(self) -> State:
        return {"optimizer": self.optimizer.state_dict(), "average": self.average.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.average.load_state_dict(state["average"])
