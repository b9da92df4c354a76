"""The update: PPO on the sum of two advantages, and distillation, which lowers the novelty of seen observations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from acme_rnd.config import RNDConfig
from acme_rnd.networks import Novelty, TwoValuePolicy
from rlsdk.interfaces import BuildContext, Parts, State, require_spaces
from rlsdk.math import clipped_surrogate, gae, normalized
from rlsdk.records import Metrics, Observation, Rollout, successors
from rlsdk.spaces import Discrete
from rlsdk.training import OnPolicyPlan
from rlsdk.tree import map_tensors
from rlsdk.updates import FlatOptimizer


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """N steps of a rollout."""

    observation: Observation
    following: Observation  # [N], the next observations
    action: Tensor  # int64 [N], from 0
    log_prob: Tensor  # float [N], when the action was taken
    advantage: Tensor  # float [N], weighted sum for both rewards
    target: Tensor  # float [2, N], the targets of the two values
    valid: Tensor  # bool [N]


class RandomNetworkDistillation:
    """PPO with an intrinsic reward. Source: Burda et al. 2018, arXiv:1810.12894."""

    def __init__(self, policy: TwoValuePolicy, novelty: Novelty, config: RNDConfig, generator: Generator) -> None:
        self.policy, self.novelty, self.config, self.generator = policy, novelty, config, generator
        trained = [*policy.parameters(), *novelty.predictor.parameters()]
        self.optimizer = FlatOptimizer(trained, "adam", config.learning_rate)
        self.return_square = torch.ones((), device=generator.device)
        """The running mean square of the intrinsic return. Intrinsic rewards are divided by its root."""

    def update(self, batch: Rollout[tuple[()], Tensor], *, progress: float) -> Metrics:
        """Learn from a rollout [T, B]."""
        rows, bonus = self._rows(batch)
        self.novelty.observe(map_tensors(lambda leaf: leaf[rows.valid], rows.following.features))
        totals = torch.zeros(3, device=bonus.device)
        count = 0
        for _ in range(self.config.n_epochs):
            order = torch.randperm(len(rows.action), generator=self.generator, device=bonus.device)
            for index in torch.split(order[rows.valid[order]], self.config.batch_size):
                totals += self._step(rows, index)
                count += 1
        losses = dict(zip(("policy_loss", "value_loss", "distillation_loss"), totals / max(1, count), strict=True))
        return {**{f"train/{name}": loss for name, loss in losses.items()}, "train/intrinsic_reward": bonus.mean()}

    def _step(self, rows: Rows, index: Tensor) -> Tensor:
        """Take one gradient step on the rows at `index`, int64 [M]. Returns the three losses, float [3]."""
        config = self.config
        observation = map_tensors(lambda leaf: leaf[index], rows.observation)
        following = map_tensors(lambda leaf: leaf[index], rows.following)
        chosen = self.policy.distribution(observation)
        ratio = (chosen.log_prob(rows.action[index]) - rows.log_prob[index]).exp()
        policy_loss = clipped_surrogate(ratio, normalized(rows.advantage[index]), config.clip_range).mean()
        value_loss = (self.policy.values(observation) - rows.target[:, index]).square().mean()
        distillation = self.novelty(following.features).mean()
        loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * chosen.entropy().mean() + distillation
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step(config.learning_rate, config.max_grad_norm)
        return torch.stack([policy_loss, value_loss, distillation]).detach()

    @torch.no_grad()
    def _rows(self, rollout: Rollout[tuple[()], Tensor]) -> tuple[Rows, Tensor]:
        """Return the rows of a rollout, and their intrinsic rewards [T, B]."""
        steps, config = rollout.steps, self.config
        shape = steps.reward.shape
        flat = map_tensors(lambda leaf: leaf.flatten(0, 1), (steps.observation, successors(rollout)))
        observation, following = flat
        bonus = self.novelty(following.features).view(shape) * steps.valid
        bonus = bonus / self.return_scale(bonus)
        extrinsic, intrinsic = self.policy.values(observation).view(2, *shape)
        after = self.policy.values(following)[0].view(shape)
        alive = config.gamma * (~steps.terminated).float()
        trace = config.gamma * config.gae_lambda * (~(steps.terminated | steps.truncated)).float()
        own = gae(steps.reward, extrinsic, after, alive, trace)
        # an episode's end does not end the intrinsic return, which continues with the first row of the next episode
        last = self.policy.values(rollout.last_observation)[1]
        # an invalid row is a reset, not a step: it passes on the value of the row after it
        on = torch.where(steps.valid, config.intrinsic_gamma, 1.0)
        trace = torch.where(steps.valid, config.intrinsic_gamma * config.gae_lambda, 1.0)
        intrinsic = torch.where(steps.valid, intrinsic, torch.cat([intrinsic[1:], last.unsqueeze(0)]))
        curious = gae(bonus, intrinsic, torch.cat([intrinsic[1:], last.unsqueeze(0)]), on, trace)
        advantage = config.extrinsic_coef * own + config.intrinsic_coef * curious
        target = torch.stack([own + extrinsic, curious + intrinsic]).flatten(1)
        action = steps.action.long().flatten() - self.policy.start
        columns = action, steps.extras.flatten(), advantage.flatten(), target, steps.valid.flatten()
        return Rows(observation, following, *columns), bonus

    def return_scale(self, bonus: Tensor) -> Tensor:
        """Update the running mean square of discounted intrinsic returns with `bonus` [T, B], and return its root."""
        zeros, on = torch.zeros_like(bonus), torch.full_like(bonus, self.config.intrinsic_gamma)
        returns = gae(bonus, zeros, zeros, zeros, on)
        self.return_square += 0.1 * (returns.square().mean() - self.return_square)
        return self.return_square.sqrt() + 1e-8

    def state_dict(self) -> State:
        return {
            "novelty": self.novelty.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "return_square": self.return_square,
        }

    def load_state_dict(self, state: State, /) -> None:
        self.novelty.load_state_dict(state["novelty"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.return_square.copy_(state["return_square"])


def build(context: BuildContext, config: RNDConfig) -> Parts:
    """Build the parts of an agent."""
    observations = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
    require_spaces(context, "RND", actions=("Discrete",), observations=observations)
    assert isinstance(context.action_space, Discrete)
    policy = TwoValuePolicy(context.observation_space, context.action_space, config.hidden).to(context.device)
    novelty = Novelty(context.observation_space, config.hidden).to(context.device)
    algorithm = RandomNetworkDistillation(policy, novelty, config, context.streams["update"])
    return Parts(policy=policy, algorithm=algorithm, plan=OnPolicyPlan(config.n_steps))
