"""The normalizer of an agent: running statistics of its observations and rewards, and prepared rollouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import attrs
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlsdk.errors import SettingsError, UsageError, suggest
from rlsdk.interfaces import State
from rlsdk.math.surrogate import discounted_sums
from rlsdk.networks.normalizer import ObservationNormalizer, RunningMoments, SharedArray, Vector
from rlsdk.records import Features, Observation, Rollout, Sequences, StepData, Transitions, with_observations
from rlsdk.runtime.lazy import elsewhere
from rlsdk.settings.agent_config import Normalization
from rlsdk.spaces import Space, map_leaves, shape_of
from rlsdk.tree import map_tensors

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
BatchT = TypeVar("BatchT")


SETTINGS = frozenset(field.name for field in attrs.fields(Normalization))
ATTRIBUTES = ("space", "settings", "device", "observations", "rewards", "training")
"""The attributes of a normalizer that can be assigned."""


class Normalizer:
    """Normalizes observations and rewards by running statistics.

    `observations` normalizes observations, `rewards` normalizes rewards. `training = False` freezes the statistics of both.
    """

    def __init__(self, space: Space, settings: Normalization, gamma: float, num_envs: int, device: str) -> None:
        """Raises SettingsError: there is nothing to normalize, the settings exclude each other, or `norm_obs_keys` is wrong."""
        self.space, self.settings, self.device = space, settings, device
        self.observations = ObservationNormalizer(space, settings)
        self.rewards = RewardScale(settings, gamma if settings.gamma is None else settings.gamma, num_envs)

    def __getattr__(self, name: str) -> object:
        """The setting `name`, such as `norm_reward` or `clip_obs`. Raises UnknownAttributeError for other names."""
        if name in SETTINGS and "settings" in vars(self):
            # settings are read as attributes, as in the peers' wrappers
            return getattr(self.settings, name)
        return elsewhere(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute. Raises UsageError for a setting or an unknown name, because setting these has no effect."""
        # an assignment would be stored and never read, which looks as if it had worked
        if name in SETTINGS:
            raise UsageError(
                f"{name} is chosen when the agent is made, normalize={{{name!r}: {value!r}}}, and stays; evaluations always"
                " give rewards as the environment does"
            )
        if name not in ATTRIBUTES:
            raise UsageError(f"the normalizer has no attribute {name!r} to set; {suggest(name, ('training',))}")
        super().__setattr__(name, value)

    @property
    def moments(self) -> dict[str, RunningMoments]:
        """The path of each part of observations that is normalized -> its statistics."""
        return self.observations.moments

    @property
    def training(self) -> bool:
        """Whether rollouts change the statistics."""
        return self.rewards.training

    @training.setter
    def training(self, value: bool) -> None:
        self.observations.training = self.rewards.training = value

    @property
    def frozen(self) -> dict[str, bool]:
        """Whether the statistics of `observations` and of `rewards` are frozen, so that rollouts do not change them."""
        return {"observations": not self.observations.training, "rewards": not self.rewards.training}

    def freeze(self, frozen: State) -> None:
        """Set which statistics are frozen, to a value of the property `frozen`. Raises KeyError or ValueError for others."""
        if not all(isinstance(value, bool) for value in frozen.values()):
            raise ValueError(f"frozen statistics are True or False, not {dict(frozen)}")
        self.observations.training, self.rewards.training = not frozen["observations"], not frozen["rewards"]

    # --- for users: numpy in, numpy out ----------------------------------------------------------------------------

    def normalize_obs(self, observation: Features) -> Features:
        """Normalize one observation or a batch, numpy [*shape] or [N, *shape] per leaf. The statistics do not change."""
        return self._in_numpy(RunningMoments.normalize, observation)

    def unnormalize_obs(self, observation: Features) -> Features:
        """The inverse of `normalize_obs`, except for clipping."""
        return self._in_numpy(RunningMoments.denormalize, observation)

    def _in_numpy(self, function: Callable[[RunningMoments, Tensor], Tensor], observation: Features) -> Features:
        moments = self.observations.moments

        def convert(path: str, leaf: Space, value: ArrayLike) -> NDArray[np.generic]:
            values = torch.as_tensor(value, device=self.device)
            single = values.dim() == len(shape_of(leaf))
            rows = values.unsqueeze(0) if single else values
            found = function(moments[path], rows) if path in moments else rows
            return (found[0] if single else found).numpy(force=True)

        return map_leaves(self.space, convert, observation)

    def normalize_reward(self, reward: ArrayLike) -> NDArray[np.float32]:
        """Normalize rewards of any shape. The statistics do not change."""
        return self.rewards.normalize(torch.as_tensor(reward, dtype=torch.float32)).numpy(force=True)

    def unnormalize_reward(self, reward: ArrayLike) -> NDArray[np.float32]:
        """The inverse of `normalize_reward`, except for clipping and signs."""
        return self.rewards.denormalize(torch.as_tensor(reward, dtype=torch.float32)).numpy(force=True)

    # --- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, State]:
        """The statistics of observations and of rewards."""
        return {"observation": self.observations.state_dict(), "reward": self.rewards.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Load statistics from `state_dict`. Raises ValueError when they have other shapes."""
        self.observations.load_state_dict(state["observation"])
        self.rewards.load_state_dict(state["reward"])


class RewardScale:
    """Divides rewards by the standard deviation of the discounted return, or replaces them by their signs.

    The return of each environment is R <- gamma R + r. Rewards are clipped, but not shifted by a mean.
    `training = False` freezes the statistics.
    """

    def __init__(self, settings: Normalization, gamma: float, num_envs: int) -> None:
        # signs have no scale to normalize
        if settings.sign_reward and settings.norm_reward:
            raise SettingsError("normalize: sign_reward and norm_reward exclude each other; set norm_reward = false")
        self.settings, self.gamma, self.training = settings, gamma, True
        # returns and not rewards: the scale of a return depends on how rewards follow one another
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

    def update(self, rollout: Rollout[CarryT, ExtrasT], *, keeps_raw: bool) -> Rollout[CarryT, ExtrasT]:
        """Update the statistics, and return the rollout with normalized rewards, or with the signs of rewards.

        The reward of a step is divided by the deviation after that step. With `keeps_raw`, for a replay buffer, rewards are
        not divided: it divides those that it samples, by the deviation of then.
        """
        steps, reward = rollout.steps, rollout.steps.reward
        if self.settings.sign_reward:
            return replace(rollout, steps=replace(steps, reward=reward.sign()))
        if not self.settings.norm_reward:
            return rollout
        deviation = self.observe(reward, steps.terminated, steps.truncated, steps.valid)
        if keeps_raw:
            return rollout
        return replace(rollout, steps=replace(steps, reward=self._scaled(reward, torch.as_tensor(deviation))))

    def observe(self, reward: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor) -> Vector:
        """Update the statistics, and return the deviation of returns after each of T steps, [T, 1].

        While `training` is False, the statistics do not change, and the result is the current deviation, [1, 1].

        Args:
            reward: float [T, B].
            terminated: bool [T, B]. The return of an environment starts from 0 after a step that ends an episode.
            truncated: bool [T, B], used like `terminated`.
            valid: bool [T, B], False for padding rows, which do not count.
        """
        # an evaluation must not change what the training has seen
        if not self.training:
            return self._deviation(self.moments.mean_variance[1])[:, None]
        variance = self._variances(reward, terminated, truncated, valid)
        self.refresh()
        return self._deviation(variance)[:, None]

    def _variances(self, reward: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor) -> Vector:
        """Add the returns of T steps to the moments, and return the variance after each step, [T]."""
        # off-policy rounds have one step, for which the general way would cost several times as much
        if len(reward) == 1 and bool(valid.all()):
            self._row.tensor.copy_(reward[0])  # `_row.array` shares this memory
            returns = self._row.array + self.gamma * self.returns
            ended = terminated[0] | truncated[0]
            self.returns = np.where(ended.numpy(force=True), 0.0, returns) if bool(ended.any()) else returns
            return self.moments.update_row(returns)
        earned = reward.numpy(force=not reward.is_cpu).astype(np.float64)
        over, counted = terminated.numpy(force=True) | truncated.numpy(force=True), valid.numpy(force=True)
        # a padding row has no reward; its return must not change the running one
        earned[~counted] = 0.0
        # the return continues from the last rollout
        earned[0] += self.gamma * self.returns
        weight = np.full_like(earned, self.gamma)
        # after the end of an episode the return starts from 0
        weight[1:][over[:-1]] = 0.0
        # a forward sum is a backward one of reversed rows, for which there is compiled code
        returns = discounted_sums(*(torch.from_numpy(rows[::-1].copy()) for rows in (earned, weight))).numpy()[::-1]
        self.returns = np.where(over[-1], 0.0, returns[-1])
        return self.moments.update_each(returns, None if counted.all() else counted)

    def _deviation(self, variance: Vector) -> Vector:
        deviation: Vector = np.sqrt(variance + self.settings.epsilon)
        return deviation

    def _scaled(self, reward: Tensor, deviation: Tensor) -> Tensor:
        scaled = reward.double().div_(deviation.to(reward.device))
        # early in the training the deviation is small, and a single reward could dominate
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
        # the moments fit every number of environments, the running returns do not
        self.moments.load_state_dict(state)
        self.refresh()
        returns = torch.as_tensor(state["returns"]).double().cpu().numpy()
        if returns.shape == self.returns.shape:  # with another number of environments the returns are not loaded
            self.returns = returns.copy()


def normalized(normalizer: ObservationNormalizer, observation: Observation) -> Observation:
    """The observation [.., *shape] with normalized features."""
    return Observation(normalizer.collected(observation.features), observation.is_first, observation.action_mask)


def normalized_batch(normalizer: Normalizer, batch: BatchT) -> BatchT:
    """A batch from a replay buffer with observations and rewards normalized by the current statistics.

    Only `Transitions` and `Sequences` are normalized. For other types of batches, the algorithm must use
    `BuildContext.observation_normalizer` and `BuildContext.reward_normalizer`.
    """
    observations, rewards = normalizer.observations, normalizer.rewards
    if isinstance(batch, Transitions):
        return replace(
            batch,
            observation=normalized(observations, batch.observation),
            reward=rewards.normalize(batch.reward),
            next_observation=normalized(observations, batch.next_observation),
        )
    if isinstance(batch, Sequences):
        steps, seen = batch.steps, normalized(observations, batch.steps.observation)
        return replace(
            batch,
            steps=replace(steps, observation=seen, reward=rewards.normalize(steps.reward)),
            next_observation=normalized(observations, batch.next_observation),
        )
    return batch


class RolloutNormalizer:
    """Normalizes the observations and rewards that a collector collects for one agent."""

    def __init__(self, normalizer: Normalizer, *, keeps_raw: bool) -> None:
        """`keeps_raw`: whether rollouts go to a replay buffer, which stores raw observations and rewards."""
        self.normalizer, self.keeps_raw = normalizer, keeps_raw

    def observation(self, observation: Observation) -> Observation:
        """The normalized observation [.., *shape] for the policy."""
        return normalized(self.normalizer.observations, observation)

    def rollout(
        self,
        rollout: Rollout[CarryT, ExtrasT],
        estimates: Callable[[StepData[ExtrasT]], ExtrasT] | None = None,
    ) -> Rollout[CarryT, ExtrasT]:
        """The normalized rollout [T, B], or the raw rollout for a replay buffer. Its valid rows update the statistics.

        `estimates` is that of the policy, see `rlsdk.interfaces.PolicyAbilities`. It gets normalized observations. The
        caller disables gradients.
        """
        # a replay buffer stores raw rows: they are normalized by the statistics of the time when they are sampled
        acted = rollout if self.keeps_raw and estimates is None else with_observations(rollout, self.observation)
        given = rollout if self.keeps_raw else acted
        if estimates is not None:
            given = replace(given, steps=replace(given.steps, extras=estimates(acted.steps)))
        # after the policy's estimates: they have to use the statistics with which it acted
        features = map_tensors(lambda leaf: leaf.flatten(0, 1), rollout.steps.observation.features)
        valid = rollout.steps.valid
        self.normalizer.observations.update(features, None if bool(valid.all()) else valid.flatten())
        return self.normalizer.rewards.update(given, keeps_raw=self.keeps_raw)
