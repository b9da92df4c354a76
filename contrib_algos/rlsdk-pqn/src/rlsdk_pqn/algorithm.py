"""The update of PQN. Source: Gallici et al. 2024, arXiv:2407.04811, algorithm 1 and appendix on Q(lambda)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.interfaces import State
from rlsdk.math import explained_variance, gae, greedy_target, half_squared_error, taken_values
from rlsdk.networks import DiscreteValuePolicy
from rlsdk.records import Features, Metrics, Observation, Rollout
from rlsdk.runtime import count_in
from rlsdk.updates import FlatOptimizer
from rlsdk_pqn.config import PQNConfig


class ParallelQLearning:
    """Trains the values of the actions taken towards Q(lambda) returns, in several epochs of minibatches per rollout.

    If an action consists of several choices, one network has separate values for each, each with a separate target
    (arXiv:1711.08946). The loss is then the mean over choices.
    """

    def __init__(self, policy: DiscreteValuePolicy, config: PQNConfig, generator: Generator) -> None:
        """`generator` samples the order of the rows."""
        self.policy, self.config, self.generator = policy, config, generator
        networks, rate = config.policy_kwargs, config.learning_rate(1.0)
        self.optimizer = FlatOptimizer(policy, networks.optimizer_class, rate, networks.optimizer_kwargs)
        self.updates = 0
        """The number of epochs begun so far."""
        policy.epsilon.fill_(config.exploration_initial_eps)

    def reconfigure(self, config: PQNConfig) -> None:
        """Use the settings of `config` from the next update on."""
        # later the schedule has set it, and the new schedule counts from the next update
        if not self.updates:
            self.policy.epsilon.fill_(config.exploration_initial_eps)
        self.config = config

    def update(self, batch: Rollout[tuple[()], tuple[()]], *, progress: float) -> Metrics:
        """Learn from a rollout [T, B]. Metrics are means over its minibatches."""
        policy, config, valid = self.policy, self.config, batch.steps.valid.flatten()
        values, target = self._targets(batch)
        features, action = tree.map_tensors(
            lambda leaf: leaf.flatten(0, 1), (batch.steps.observation.features, batch.steps.action)
        )
        rows = (features, policy.from_environment(action), target)
        if not bool(valid.all()):  # padding rows hold no step
            inside = valid.nonzero().squeeze(-1)
            rows, values = tree.map_tensors(lambda leaf: leaf.index_select(0, inside), (rows, values))
        target, count = rows[-1], len(values)
        if policy.has_train_mode:
            policy.train()
        rate, size, losses = config.learning_rate(1.0 - progress), config.batch_size or count, []
        for _ in range(config.n_epochs):
            self.updates += 1
            order = torch.randperm(count, generator=self.generator, device=target.device)
            # one copy of all rows in the new order; minibatches are then views of it
            drawn = tree.map_tensors(lambda leaf, order=order: leaf.index_select(0, order), rows)
            losses += [self._learn(*part, rate) for part in tree.split(drawn, size)]
        policy.epsilon.fill_(config.exploration_rate(progress))
        return {
            "train/loss": torch.stack(losses).mean(),
            "train/explained_variance": explained_variance(values.flatten(), target.flatten()),
            "rollout/exploration_rate": policy.epsilon.clone(),
        }

    def _learn(self, features: Features, action: Tensor, target: Tensor, rate: float) -> Tensor:
        """Make one step towards targets [N, choices] of actions [N, choices]; returns the loss, 0-d."""
        #   loss = 0.5 * (q(s)[action] - target).square().mean()
        policy = self.policy
        values, vjp = policy.evaluate(features)
        taken, taken_vjp = taken_values(values, action, policy.sizes)
        loss, grad = half_squared_error(taken.transpose(0, 2), target)  # [1, N, choices]
        self.optimizer.zero_grad()
        vjp(taken_vjp(grad.transpose(0, 2).contiguous()))
        self.optimizer.step(rate, self.config.max_grad_norm)
        return loss

    @torch.no_grad()
    def _targets(self, batch: Rollout[tuple[()], tuple[()]]) -> tuple[Tensor, Tensor]:
        """Return (the largest allowed values of the observations, the returns), float [T * B, choices] each.

        With v(s) = max over a of Q(s, a): G_t = r_t + gamma ((1 - lambda) v(s_{t+1}) + lambda G_{t+1}). A termination cuts
        both terms. At a time limit and after the last row, G_t = r_t + gamma v(s_{t+1}).
        """
        # The difference G_t - v(s_t) is a generalized advantage estimate:
        #   G_t - v(s_t) = r_t + gamma v(s_{t+1}) - v(s_t) + gamma lambda (G_{t+1} - v(s_{t+1}))
        if self.policy.has_train_mode:
            self.policy.eval()
        config, steps = self.config, batch.steps
        lead = (*steps.reward.shape, -1)
        value = self._best(tree.map_tensors(lambda leaf: leaf.flatten(0, 1), steps.observation)).view(lead)
        following = torch.cat([value[1:], self._best(batch.last_observation).unsqueeze(0)])
        if finals := batch.final_observations:
            following[finals.time, finals.env] = self._best(finals.observation)
        choices = value.shape[-1]
        cut = steps.terminated | steps.truncated | ~steps.valid
        # a step that no other step of its episode follows
        cut[:-1] |= ~steps.valid[1:]
        per_choice = [
            each.repeat_interleave(choices, -1)
            for each in (steps.reward, config.gamma * ~steps.terminated, config.gamma * config.q_lambda * ~cut)
        ]
        reward, discount, trace = per_choice
        flat = (value.flatten(1), following.flatten(1))
        target = gae(reward, *flat, discount, trace) + flat[0]
        return value.flatten(0, 1), target.view(lead).flatten(0, 1)

    def _best(self, observation: Observation) -> Tensor:
        """The largest allowed value of each choice, float [N, choices], of observations [N]."""
        values, _ = self.policy.evaluate(observation.features)
        zeros, mask = values.new_zeros(len(values)), observation.action_mask
        best = greedy_target(values, zeros, zeros + 1.0, self.policy.sizes, mask=mask, selector=values)
        return best.squeeze(-1).T

    def state_dict(self) -> State:
        return {"optimizer": self.optimizer.state_dict(), "counters": {"updates": self.updates}}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = count_in(state["counters"], "updates")
