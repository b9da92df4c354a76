"""The update of IQL. Source: Kostrikov et al. 2021, arXiv:2110.06169, algorithm 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlsdk.interfaces import Distribution, State
from rlsdk.kernels import Structure
from rlsdk.math import half_squared_error
from rlsdk.networks import ActorCritic, ContinuousCritics, Layers
from rlsdk.records import Metrics, Observation, Transitions
from rlsdk.updates import FlatOptimizer, TargetNetwork
from rlsdk_iql.config import IQLConfig
from rlsdk_iql.losses import advantage_weights, expectile_loss
from rlsdk_iql.networks import ActionInput

LOG_STD_MAX = 2.0
"""The largest log standard deviation of unit actions."""


class ImplicitQLearning:
    """Trains values V, a policy and critics from recorded transitions alone.

    The order in one update is: V, policy, critics, target network. The policy and the critics see V after its step. Each of
    the three has an encoder of its own.
    """

    def __init__(
        self, policy: ActorCritic, critics: ContinuousCritics, action_input: ActionInput, config: IQLConfig
    ) -> None:
        """`action_input` converts recorded actions to inputs of the critics."""
        self.policy, self.critics, self.action_input, self.config = policy, critics, action_input, config
        networks, rate = config.policy_kwargs, config.learning_rate(1.0)
        choice, arguments = networks.optimizer_class, networks.optimizer_kwargs
        self.actor_optimizer = FlatOptimizer(policy.actor_parameters, choice, rate, arguments)
        self.value_optimizer = FlatOptimizer(self._value_parameters(), choice, rate, arguments)
        self.optimizer = FlatOptimizer(critics, choice, rate, arguments)
        self.target = TargetNetwork(critics)
        # compiled code evaluates them, which takes half the time of modules
        self._body, self._value_layers = Layers(policy, "body"), Layers(policy, "critic_body", "value")
        self._structure, self._deviations = Structure(policy), list[nn.Parameter]()

    def _value_parameters(self) -> list[nn.Parameter]:
        """The parameters that V depends on."""
        acting = set(map(id, self.policy.actor_parameters))
        return [parameter for parameter in self.policy.parameters() if id(parameter) not in acting]

    def reconfigure(self, config: IQLConfig) -> None:
        """Use new settings from the next update on."""
        self.config = config

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """Learn from N transitions; returns metrics, each 0-d."""
        # One step of each optimizer along the gradient of these losses; `reference.py` states them again:
        #   q = target_critics(s, a).amin(0)
        #   value_loss = (abs(tau - (q < V(s))) * (q - V(s)).square()).mean()    # equation 5
        #   actor_loss = -(min(exp(beta * (q - V(s))), max_weight) * log_pi(a | s)).mean()    # equation 7
        #   critic_loss = (critics(s, a) - (r + discount * V(s_next))).square().mean(1).sum()    # equation 6
        config, remaining = self.config, 1.0 - progress
        rate = config.learning_rate(remaining)
        self._begin()
        action = self.action_input(batch.action)
        wanted = self._smallest(batch.observation, action)
        value = self._values(batch.observation)
        value_loss, grad = expectile_loss(value.detach(), wanted, config.expectile)
        self.value_optimizer.zero_grad()
        torch.autograd.backward(value, grad)
        self.value_optimizer.step(rate)
        with torch.no_grad():
            now, following = self._values(batch.observation), self._values(batch.next_observation)
            weight = advantage_weights(wanted - now, config.beta, config.max_weight)
        chosen = self._distribution(batch.observation)
        actor_loss = -(weight * chosen.log_prob(self.policy.internal(batch.action))).mean()
        self.actor_optimizer.zero_grad()
        torch.autograd.backward(actor_loss)
        own = config.actor_learning_rate
        self.actor_optimizer.step(rate if own is None else own(remaining))
        self._bound_deviations()
        metrics = {"train/value_loss": value_loss, "train/actor_loss": actor_loss.detach(), "train/value": now.mean()}
        metrics["train/critic_loss"] = self._learn_values(batch, action, following, rate)
        self.target.update(config.tau)
        std = self.policy.action_std()
        return metrics if std is None else {**metrics, "train/std": std}

    def _begin(self) -> None:
        """Look for layers that were replaced, and switch dropout and batch statistics on if there are any."""
        # visiting the modules of a small network takes as long as its forward pass, so only after a change
        if self._structure.changed():
            self.policy.refit()
            self.actor_optimizer.adopt(self.policy.actor_parameters)
            self.value_optimizer.adopt(self._value_parameters())
            self._deviations = [each for name, each in self.policy.named_parameters() if name.endswith("log_std")]
        if self.policy.has_train_mode:
            self.policy.train()

    @torch.no_grad()
    def _smallest(self, observation: Observation, action: Tensor) -> Tensor:
        """The smallest value [N] of the target critics for action inputs [N, A]."""
        target = self.target.network
        values, _ = target.evaluate(target.encoder(observation.features), action)
        return values.amin(0).squeeze(-1)

    def _values(self, observation: Observation) -> Tensor:
        """V [N]."""
        encoder = self.policy.critic_encoder
        assert encoder is not None
        return self._value_layers(encoder(observation.features)).squeeze(-1)

    def _distribution(self, observation: Observation) -> Distribution:
        """The distribution of actions for observations [N, ..], under their masks."""
        policy = self.policy
        mask = observation.action_mask if policy.use_masks else None
        found: Distribution = policy.head(self._body(policy.encoder(observation.features)), mask)
        return found

    def _learn_values(self, batch: Transitions, action: Tensor, following: Tensor, rate: float) -> Tensor:
        """Train the critics on N transitions with V(s') [N]; returns their loss, 0-d."""
        wanted = (batch.reward + batch.discount * following).unsqueeze(-1)
        values, vjp = self.critics.evaluate(self.critics.encoder(batch.observation.features), action)
        loss, grad = half_squared_error(values, wanted, weight=batch.weight)
        self.optimizer.zero_grad()
        vjp(2.0 * grad)  # equation 6 has the whole square
        self.optimizer.step(rate)
        return 2.0 * loss

    @torch.no_grad()
    def _bound_deviations(self) -> None:
        # after the step and not inside the network, where a parameter beyond its bound would have no gradient
        for parameter in self._deviations:
            parameter.clamp_(self.config.log_std_min, LOG_STD_MAX)

    def state_dict(self) -> State:
        return {
            "critic": dict(self.critics.state_dict()),
            "critic_target": self.target.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "value_optimizer": self.value_optimizer.state_dict(),
            "critic_optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: State, /) -> None:
        self.critics.load_state_dict(state["critic"])
        self.target.load_state_dict(state["critic_target"])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.value_optimizer.load_state_dict(state["value_optimizer"])
        self.optimizer.load_state_dict(state["critic_optimizer"])
