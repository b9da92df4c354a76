"""The update of GAIL: PPO on the discriminator's reward, and gradient steps of the discriminator."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.interfaces import State
from rlsdk.records import Features, Metrics, Rollout
from rlsdk.runtime import count_in
from rlsdk.updates import ClippedPolicy, FlatOptimizer
from rlsdk_gail.config import GAILConfig
from rlsdk_gail.discriminator import Discriminator
from rlsdk_gail.expert import ExpertSteps
from rlsdk_gail.loss import bernoulli_entropy, discriminator_loss, gradient_penalty, learned_reward

WON, PATIENCE = 0.99, 10
"""The share of expert steps and of policy steps that a winning discriminator classifies correctly, and the number of updates
with a winning discriminator before a warning."""

Steps = tuple[Features, Features]
"""(observations as the policy gets them, actions in environment units), with leaves [N, ..]."""


class AdversarialImitation:
    """Algorithm 1 of arXiv:1606.03476 with PPO for the policy step. PPO gets the discriminator's rewards, not those of the
    environment."""

    def __init__(
        self,
        policy: ClippedPolicy,
        discriminator: Discriminator,
        expert: ExpertSteps,
        config: GAILConfig,
        generator: Generator,
    ) -> None:
        self.policy, self.discriminator, self.expert = policy, discriminator, expert
        self.config, self.generator = config, generator
        self.optimizer = FlatOptimizer(discriminator, "adam", config.d_stepsize)
        self.rounds = self.won = 0
        """`rounds`: rollouts so far. `won`: consecutive updates, up to the latest, in which the discriminator won."""

    @property
    def updates(self) -> int:
        """The number of updates of the policy, as PPO counts them."""
        return self.policy.updates

    def reconfigure(self, config: GAILConfig) -> None:
        """Use new settings from the next update on, except settings of networks."""
        self.config = config
        self.policy.reconfigure(config)

    def discarded(self, rollout: Rollout[Any, Any]) -> None:
        """Handle a rollout that a callback cut short. Nothing is learned from it, but it changed the statistics."""
        self.expert.rollout_ended()

    def update(self, batch: Rollout[Any, Any], *, progress: float) -> Metrics:
        """Learn from a rollout [T, B]. Its own rewards are not read. Metrics are 0-d."""
        mine = steps_of(batch)
        metrics = self._compared(mine, int(batch.steps.valid.sum()))
        reward = self.rewards(batch)
        metrics["train/learned_reward"] = reward[batch.steps.valid].mean()
        learned = self.policy.update(replace(batch, steps=replace(batch.steps, reward=reward)), progress=progress)
        self.rounds += 1
        if self.rounds % self.config.g_step == 0:
            for _ in range(self.config.d_step):
                self._discriminator_step(mine)
        self.expert.rollout_ended()
        return {**learned, **metrics}

    @torch.no_grad()
    def rewards(self, batch: Rollout[Any, Any]) -> Tensor:
        """The discriminator's reward of each step, float32 [T, B]; 0 for invalid rows."""
        valid = batch.steps.valid
        reward = torch.zeros(valid.shape, device=valid.device)
        reward[valid] = learned_reward(self.discriminator(*steps_of(batch)), self.config.reward)
        return reward

    @torch.no_grad()
    def _compared(self, mine: Steps, count: int) -> dict[str, Tensor]:
        """Measure how well the discriminator distinguishes this rollout from the expert, before any update. Metrics are 0-d."""
        expert, policy = self.discriminator(*self.expert.sample(count)), self.discriminator(*mine)
        right = (expert > 0.0).float().mean(), (policy < 0.0).float().mean()
        self.won = self.won + 1 if min(map(float, right)) >= WON else 0
        if self.won == PATIENCE:
            warnings.warn(
                f"GAIL: in {PATIENCE} updates in a row the discriminator recognized {WON:.0%} or more of the expert's steps and"
                " of the policy's, so its reward may teach little; lower d_step or d_stepsize, raise adversary_entcoeff or"
                " gradient_penalty, or record more episodes",
                stacklevel=2,
            )
        return {
            "train/discriminator_loss": discriminator_loss(expert, policy),
            "train/discriminator_entropy": bernoulli_entropy(torch.cat([expert, policy])).mean(),
            "train/expert_accuracy": right[0],
            "train/policy_accuracy": right[1],
            "train/discriminator_wins": expert.new_tensor(float(self.won)),
        }

    def _discriminator_step(self, mine: Steps) -> None:
        """Take one gradient step on as many rows of the expert as of the policy, which are drawn without replacement."""
        config, found = self.config, tree.leaves(mine)
        size = config.demo_batch_size or max(1, len(found[0]) // config.d_step)
        index = torch.randperm(len(found[0]), generator=self.generator, device=found[0].device)[:size]
        policy: Steps = tree.map_tensors(lambda leaf: leaf[index], mine)
        expert = self.expert.sample(len(index))
        self.discriminator.update_scale(expert[0], policy[0])
        self.optimizer.zero_grad()
        torch.autograd.backward(self.loss(expert, policy))
        self.optimizer.step(config.d_stepsize)

    def loss(self, expert: Steps, policy: Steps) -> Tensor:
        """The loss of the discriminator, 0-d: cross-entropy - adversary_entcoeff * entropy + gradient_penalty * penalty."""
        inputs = [self.discriminator.inputs(*steps) for steps in (expert, policy)]
        logits = [self.discriminator.logits(each) for each in inputs]
        loss = discriminator_loss(*logits)
        if self.config.adversary_entcoeff:
            loss = loss - self.config.adversary_entcoeff * bernoulli_entropy(torch.cat(logits)).mean()
        if self.config.gradient_penalty:
            loss = loss + self.config.gradient_penalty * self._penalty(*inputs)
        return loss

    def _penalty(self, expert: Tensor, policy: Tensor) -> Tensor:
        """The gradient penalty, 0-d, at random points between pairs of rows of the inputs [N, F] and [M, F]."""
        count = min(len(expert), len(policy))
        share = torch.rand(count, 1, generator=self.generator, device=expert.device)
        between = (share * expert[:count] + (1.0 - share) * policy[:count]).detach().requires_grad_()
        total = self.discriminator.logits(between).sum()
        return gradient_penalty(torch.autograd.grad(total, between, create_graph=True)[0])

    def state_dict(self) -> State:
        """The state of both updates, the discriminator and the statistics. The policy's weights are stored with the policy."""
        return {
            "policy_update": self.policy.state_dict(),
            "discriminator": self.discriminator.state_dict(),
            "discriminator_optimizer": self.optimizer.state_dict(),
            "expert": self.expert.state_dict(),
            "counters": {"rounds": self.rounds, "won": self.won},
        }

    def load_state_dict(self, state: State, /) -> None:
        self.policy.load_state_dict(state["policy_update"])
        self.discriminator.load_state_dict(state["discriminator"])
        self.optimizer.load_state_dict(state["discriminator_optimizer"])
        self.expert.load_state_dict(state.get("expert", {}))
        self.rounds, self.won = (count_in(state["counters"], name) for name in ("rounds", "won"))


def steps_of(batch: Rollout[Any, Any]) -> Steps:
    """The N valid steps of a rollout [T, B]."""
    steps = batch.steps
    both: Steps = (steps.observation.features, steps.action)
    return tree.map_tensors(lambda leaf: leaf[steps.valid], both)
