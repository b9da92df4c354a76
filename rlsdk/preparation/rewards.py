"""Rewards as they are learnt from. Nobody acts on them, so that a whole rollout's are prepared at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlsdk.errors import SettingsError
from rlsdk.math.returns import discounted_sums
from rlsdk.preparation.leaf_scale import as_array
from rlsdk.preparation.moments import RunningMoments
from rlsdk.records import Rollout
from rlsdk.settings.preparation import Normalization


class RewardScale:
    """Rewards are divided by the deviation of the discounted return, R <- gamma R + r, of each environment; they are not
    shifted. `training = False` freezes the statistics.
    """

    def __init__(self, settings: Normalization, gamma: float, num_envs: int) -> None:
        if settings.sign_reward and settings.norm_reward:
            raise SettingsError("normalize: sign_reward and norm_reward exclude each other; set norm_reward = false")
        self.settings, self.gamma, self.training = settings, gamma, True
        self.returns, self.moments = np.zeros(num_envs), RunningMoments(())

    def seen(self, rollout: Rollout[Any, Any], *, normalize: bool) -> Rollout[Any, Any]:
        """A rollout whose rewards are taken into the statistics: signs where those are asked for, else normalised as they
        were at each step, or left for `normalized` when they are learnt from."""
        steps, settings = rollout.steps, self.settings
        if settings.sign_reward:
            return replace(rollout, steps=replace(steps, reward=steps.reward.sign()))
        if not settings.norm_reward:
            return rollout
        deviation = self.observe(steps.reward, steps.terminated | steps.truncated, steps.valid)
        if not normalize:
            return rollout
        return replace(rollout, steps=replace(steps, reward=self._scaled(steps.reward, deviation)))

    def observe(self, reward: Tensor, ended: Tensor, valid: Tensor) -> Any:
        """The deviation [T, 1] of returns after each of T steps that gave rewards [T, B]; the return starts again after a
        step in which an episode `ended` bool [T, B]. Filler rows, not `valid` bool [T, B], do not count."""
        if not self.training:
            return self._deviation(self.moments.kept[1])[:, None]
        earned, over, counted = as_array(reward).astype(np.float64), as_array(ended), as_array(valid)
        if not (whole := bool(counted.all())):
            earned[~counted] = 0.0
        elif len(earned) == 1:
            returns = earned[0] + self.gamma * self.returns
            self.returns = np.where(over[0], 0.0, returns)
            return self._deviation(self.moments.update_row(returns))[:, None]
        earned[0] += self.gamma * self.returns
        weight = np.full_like(earned, self.gamma)
        weight[1:][over[:-1]] = 0.0
        backwards = (torch.from_numpy(rows).flip(0) for rows in (earned, weight))
        returns = discounted_sums(*backwards).flip(0).numpy()
        self.returns = np.where(over[-1], 0.0, returns[-1])
        return self._deviation(self.moments.update_each(returns, None if whole else counted))[:, None]

    def _deviation(self, variance: Any) -> Any:
        return np.sqrt(variance + self.settings.epsilon)

    def _scaled(self, reward: Tensor, deviation: Any) -> Tensor:
        scaled = reward.double() / torch.as_tensor(deviation, device=reward.device)
        return scaled.clamp(-self.settings.clip_reward, self.settings.clip_reward).float()

    def normalized(self, reward: Tensor) -> Tensor:
        """Rewards of any shape with the statistics of now."""
        return self._scaled(reward, self._deviation(self.moments.variance)) if self.settings.norm_reward else reward

    def prepared(self, reward: Tensor) -> Tensor:
        """Rewards of any shape as they are learnt from, with the current statistics: signs under `sign_reward`."""
        return reward.sign() if self.settings.sign_reward else self.normalized(reward)

    def restored(self, reward: Tensor) -> Tensor:
        """Rewards that were normalised, as they were, up to clipping."""
        return (reward * float(self._deviation(self.moments.variance))) if self.settings.norm_reward else reward

    def state_dict(self) -> dict[str, Tensor]:
        return {**self.moments.state_dict(), "returns": torch.tensor(self.returns)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError when the statistics are of another shape."""
        self.moments.load_state_dict(state)
        returns = torch.as_tensor(state["returns"]).double().cpu().numpy()
        if returns.shape == self.returns.shape:  # another number of environments starts them anew
            self.returns = returns.copy()
