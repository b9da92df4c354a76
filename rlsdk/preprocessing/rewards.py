"""Rewards as algorithms learn from them. No action depends on them, so a whole rollout is processed at once."""

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
    """Rewards are divided by the deviation of the discounted return, R <- gamma R + r, of each environment; they are not
    shifted. `training = False` freezes the statistics.
    """

    def __init__(self, settings: Normalization, gamma: float, num_envs: int) -> None:
        if settings.sign_reward and settings.norm_reward:
            raise SettingsError("normalize: sign_reward and norm_reward exclude each other; set norm_reward = false")
        self.settings, self.gamma, self.training = settings, gamma, True
        self.returns, self.moments = np.zeros(num_envs), RunningMoments(())
        self._shared, self._row = SharedArray(()), SharedArray((num_envs,))
        self.refresh()

    def refresh(self) -> None:
        """Take over the moments."""
        self._shared.array[()] = self._deviation(self.moments.variance)

    @property
    def deviation(self) -> Tensor:
        """float64, 0-d, from the current statistics."""
        return self._shared.tensor

    def update(self, rollout: Rollout[CarryT, ExtrasT]) -> Rollout[CarryT, ExtrasT]:
        """Update the statistics by the rewards of a rollout. Rewards stay raw, for memories; with `sign_reward` they become
        signs."""
        steps = rollout.steps
        if self.settings.sign_reward:
            return replace(rollout, steps=replace(steps, reward=steps.reward.sign()))
        if self.settings.norm_reward:
            self.observe(steps.reward, steps.terminated, steps.truncated, steps.valid)
        return rollout

    def update_and_normalize(self, rollout: Rollout[CarryT, ExtrasT]) -> Rollout[CarryT, ExtrasT]:
        """The rollout with its rewards normalised by the statistics after each of its steps; or their signs."""
        steps = rollout.steps
        if self.settings.sign_reward or not self.settings.norm_reward:
            return self.update(rollout)
        deviation = self.observe(steps.reward, steps.terminated, steps.truncated, steps.valid)
        reward = self._scaled(steps.reward, torch.as_tensor(deviation))
        return replace(rollout, steps=replace(steps, reward=reward))

    def observe(self, reward: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor) -> Vector:
        """The deviation [T, 1] of returns after each of T steps that gave rewards [T, B]; the return starts again after a
        step with which an episode ended, `terminated` or `truncated` bool [T, B]. Filler rows, not `valid` bool [T, B], do not
        count."""
        if not self.training:
            return self._deviation(self.moments.mean_variance[1])[:, None]
        variance = self._variances(reward, terminated, truncated, valid)
        self.refresh()
        return self._deviation(variance)[:, None]

    def _variances(self, reward: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor) -> Vector:
        """The variance [T] of returns after each step; they are taken into the moments."""
        if len(reward) == 1 and bool(valid.all()):
            self._row.tensor.copy_(reward[0])  # numpy sees this memory already
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
        """Rewards [..] as algorithms learn from them: divided by the current deviation and clipped, or their signs."""
        return self._scaled(reward, self.deviation) if self.settings.norm_reward else self._unscaled(reward)

    def _unscaled(self, reward: Tensor) -> Tensor:
        return reward.sign() if self.settings.sign_reward else reward

    def denormalize(self, reward: Tensor) -> Tensor:
        """The rewards [..] that were normalised, up to clipping."""
        return reward * float(self.deviation) if self.settings.norm_reward else reward

    def state_dict(self) -> dict[str, Tensor]:
        """The moments, 0-d, and the running return of each environment, float64 [B]."""
        return {**self.moments.state_dict(), "returns": torch.tensor(self.returns)}

    def load_state_dict(self, state: State) -> None:
        """Raises ValueError when the statistics are of another shape."""
        self.moments.load_state_dict(state)
        self.refresh()
        returns = torch.as_tensor(state["returns"]).double().cpu().numpy()
        if returns.shape == self.returns.shape:  # another number of environments resets them
            self.returns = returns.copy()
