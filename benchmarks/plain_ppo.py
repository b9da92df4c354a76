"""PPO on a vector environment of gymnasium in plain torch: modules, autograd, fused Adam, numpy for sampling, and nothing else.

It has no logs, files, checks, normalization or bootstrapping at time limits, like a program of a hundred lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float32]
CLIP, MAX_NORM = 0.2, 0.5


@dataclass(frozen=True)
class Sizes:
    """The sizes of rollouts and networks, and other settings."""

    n_envs: int
    n_steps: int
    batch_size: int
    n_epochs: int
    shared: bool
    """Whether actor and critic share one hidden layer of 64 with ReLU. Otherwise each has two layers of 64 with tanh."""
    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: float = 3e-4


class PlainPPO:
    """PPO for Discrete actions and observations float32 [B, F]."""

    def __init__(self, env: Any, sizes: Sizes) -> None:
        self.env, self.sizes, self.generator = env, sizes, np.random.default_rng(0)
        torch.manual_seed(0)
        inputs, actions = env.single_observation_space.shape[0], int(env.single_action_space.n)
        self.trunk: nn.Module = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU()) if sizes.shared else nn.Identity()
        self.actor = nn.Linear(64, actions) if sizes.shared else _separate(inputs, actions)
        self.critic = nn.Linear(64, 1) if sizes.shared else _separate(inputs, 1)
        self.parameters = [p for part in (self.trunk, self.actor, self.critic) for p in part.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=sizes.learning_rate, eps=1e-5, fused=True)
        self.seen: Floats = env.reset(seed=0)[0]

    def learn(self, steps: int) -> None:
        """Train for `steps` environment steps, rounded down to whole rollouts, but at least one."""
        size = self.sizes.n_envs * self.sizes.n_steps
        for _ in range(max(1, steps // size)):
            self._update(self._rollout())

    @torch.no_grad()
    def _rollout(self) -> list[Tensor]:
        """Collect a rollout. Returns observations, actions, log-probabilities, advantages and returns of all steps, [N, ..]."""
        length, count = self.sizes.n_steps, self.sizes.n_envs
        observations = np.empty((length, count, self.seen.shape[1]), np.float32)
        actions, log_probs = np.empty((length, count), np.int64), np.empty((length, count), np.float32)
        rewards, ends = np.empty((length, count), np.float32), np.empty((length, count), np.float32)
        values, rows = np.empty((length + 1, count), np.float32), np.arange(count)
        for t in range(length):
            observations[t] = self.seen
            hidden = self.trunk(torch.from_numpy(observations[t]))
            log_p = torch.log_softmax(self.actor(hidden), -1).numpy()
            values[t] = self.critic(hidden)[:, 0].numpy()
            actions[t] = (log_p + self.generator.gumbel(size=log_p.shape)).argmax(-1)
            log_probs[t] = log_p[rows, actions[t]]
            self.seen, rewards[t], terminated, truncated, _ = self.env.step(actions[t])
            ends[t] = terminated | truncated
        values[length] = self.critic(self.trunk(torch.from_numpy(self.seen)))[:, 0].numpy()
        advantages = self._advantages(rewards, values, ends)
        arrays = (observations, actions, log_probs, advantages, advantages + values[:-1])
        return [torch.from_numpy(array).flatten(0, 1) for array in arrays]

    def _advantages(self, rewards: Floats, values: Floats, ends: Floats) -> Floats:
        """Generalized advantage estimates [T, B]."""
        gamma, lam = self.sizes.gamma, self.sizes.gae_lambda
        found, following = np.empty_like(rewards), np.zeros_like(rewards[0])
        for t in reversed(range(len(rewards))):
            goes_on = 1.0 - ends[t]
            delta = rewards[t] + gamma * values[t + 1] * goes_on - values[t]
            found[t] = following = delta + gamma * lam * goes_on * following
        return found

    def _update(self, rollout: list[Tensor]) -> None:
        for _ in range(self.sizes.n_epochs):
            for index in torch.split(torch.randperm(len(rollout[0])), self.sizes.batch_size):
                seen, action, old, advantage, target = (column[index] for column in rollout)
                hidden = self.trunk(seen)
                log_prob = torch.log_softmax(self.actor(hidden), -1).gather(1, action[:, None])[:, 0]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                ratio = (log_prob - old).exp()
                gain = torch.min(ratio * advantage, ratio.clamp(1.0 - CLIP, 1.0 + CLIP) * advantage)
                loss = 0.5 * (self.critic(hidden)[:, 0] - target).square().mean() - gain.mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, MAX_NORM)
                self.optimizer.step()


def _separate(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
