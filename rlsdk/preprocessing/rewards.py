"""Normalisation of the rewards that algorithms learn from, a whole rollout at a time: actions do not depend on rewards."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from rlsdk.errors import SettingsError
from rlsdk.interfaces import State
from rlsdk.math.returns import discounted_sums
from rlsdk.networks.running_moments import RunningMoments, SharedArray, Vector
from rlsdk.records import Rollout
from rlsdk.settings.preprocessing import Normalization

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


class RewardScale:
    """Divides rewards by the standard deviation of the discounted return, or replaces them by their signs.

    The return of each environment is R <- gamma R + r. Rewards are clipped, but not shifted by a mean.
    `training = False` freezes the statistics.
    """

    def __init__(self, settings: Normalization, gamma: float, num_envs: int) -> None:
        if settings.sign_reward and settings.norm_reward:
            raise SettingsError("normalize: sign_reward and norm_reward exclude each other; set norm_reward = false")
        self.settings, self.gamma, self.training = settings, gamma, True
        self.returns, self.moments = np.zeros(num_envs), RunningMoments(())
        self._shared, self._row = SharedArray(()), SharedArray((num_envs,))
        self.refresh()

    def refresh(self) -> None:
        """Recompute the deviation from the moments."""
        self._shared.array[()] = self._deviation(self.moments.variance)

    @property
    def deviation(self) -> Tensor:
        """The standard deviation of returns from the current statistics, float64, 0-d."""
        return self._shared.tensor

    def update(self, rollout: Rollout[CarryT, ExtrasT]) -> Rollout[CarryT, ExtrasT]:
        """Update the statistics with the rewards of a rollout, and return the rollout for a replay buffer.

        Its rewards stay raw; with `sign_reward` they are replaced by their signs.
        """
        steps = rollout.steps
        if self.settings.sign_reward:
            return replace(rollout, steps=replace(steps, reward=steps.reward.sign()))
        if self.settings.norm_reward:
            self.observe(steps.reward, steps.terminated, steps.truncated, steps.valid)
        return rollout

    def update_and_normalize(self, rollout: Rollout[CarryT, ExtrasT]) -> Rollout[CarryT, ExtrasT]:
        """Update the statistics, and return the rollout with normalised rewards, or with the signs of rewards.

        The reward of a step is divided by the deviation after that step.
        """
        steps = rollout.steps
        if self.settings.sign_reward or not self.settings.norm_reward:
            return self.update(rollout)
        deviation = self.observe(steps.reward, steps.terminated, steps.truncated, steps.valid)
        reward = self._scaled(steps.reward, torch.as_tensor(deviation))
        return replace(rollout, steps=replace(steps, reward=reward))

    def observe(self, reward: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor) -> Vector:
        """Update the statistics, and return the deviation of returns after each of T steps, [T, 1].

        While `training` is False, the statistics do not change, and the result is the current deviation, [1, 1].

        Args:
            reward: float [T, B].
            terminated: bool [T, B]. The return of an environment starts from 0 after a step that ends an episode.
            truncated: bool [T, B], used like `terminated`.
            valid: bool [T, B], False for filler rows, which do not count.
        """
        if not self.training:
            return self._deviation(self.moments.mean_variance[1])[:, None]
        variance = self._variances(reward, terminated, truncated, valid)
        self.refresh()
        return self._deviation(variance)[:, None]

    def _variances(self, reward: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor) -> Vector:
        """Add the returns of T steps to the moments, and return the variance after each step, [T]."""
        if len(reward) == 1 and bool(valid.all()):
            self._row.tensor.copy_(reward[0])  # `_row.array` shares this memory
            returns = self._row.array + self.gamma * self.returns
            ended = terminated[0] | truncated[0]
            self.returns = np.where(ended.numpy(force=True), 0.0, returns) if bool(ended.any()) else returns
            return self.moments.update_row(returns)
        earned = reward.numpy(force=not reward.is_cpu).astype(np.float64)
        over, counted = terminated.numpy(force=True) | truncated.numpy(force=True), valid.numpy(force=True)
        earned[~counted] = 0.0
        earned[0] += self.gamma * self.returns
        weight = np.full_like(earned, self.gamma)
        weight[1:][over[:-1]] = 0.0
        returns = discounted_sums(*(torch.from_numpy(rows[::-1].copy()) for rows in (earned, weight))).numpy()[::-1]
        self.returns = np.where(over[-1], 0.0, returns[-1])
        return self.moments.update_each(returns, None if counted.all() else counted)

    def _deviation(self, variance: Vector) -> Vector:
        deviation: Vector = np.sqrt(variance + self.settings.epsilon)
        return deviation

    def _scaled(self, reward: Tensor, deviation: Tensor) -> Tensor:
        scaled = reward.double().div_(deviation.to(reward.device))
        return scaled.clamp_(-self.settings.clip_reward, self.settings.clip_reward).float()

    def normalize(self, reward: Tensor) -> Tensor:
        """The rewards [..] that algorithms learn from: divided by the current deviation and clipped, or their signs."""
        return self._scaled(reward, self.deviation) if self.settings.norm_reward else self._unscaled(reward)

    def _unscaled(self, reward: Tensor) -> Tensor:
        return reward.sign() if self.settings.sign_reward else reward

    def denormalize(self, reward: Tensor) -> Tensor:
        """The inverse of `normalize` for rewards [..], except for clipping. Signs of rewards are returned unchanged."""
        return reward * float(self.deviation) if self.settings.norm_reward else reward

    def state_dict(self) -> dict[str, Tensor]:
        """The moments, 0-d, and the running return of each environment, float64 [B]."""
        return {**self.moments.state_dict(), "returns": torch.tensor(self.returns)}

    def load_state_dict(self, state: State) -> None:
        """Load a state from `state_dict`. Raises ValueError when the moments have another shape."""
        self.moments.load_state_dict(state)
        self.refresh()
        returns = torch.as_tensor(state["returns"]).double().cpu().numpy()
        if returns.shape == self.returns.shape:  # with another number of environments the returns are not loaded
            self.returns = returns.copy()
