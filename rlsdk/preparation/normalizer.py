"""Running normalisation of observations and rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.trials import Moments, float_entries
from rlsdk.errors import SettingsError
from rlsdk.preparation.moments import RunningMoments
from rlsdk.settings.preparation import Normalization
from rlsdk.spaces import Box, Dict, Space, dtype_of, leaf_spaces, map_leaves


class Normalizer:
    """Observations become (x - mean) / sqrt(variance + epsilon), leaf by leaf; images and discrete leaves stay as they are.

    Rewards are divided by the deviation of the discounted return, R <- gamma R + r, of each environment; they are not
    shifted. `training = False` freezes the statistics.
    """

    def __init__(self, space: Space, settings: Normalization, gamma: float, num_envs: int, device: str) -> None:
        self.space, self.settings, self.training = space, settings, True
        self.gamma = gamma if settings.gamma is None else settings.gamma
        self.moments = {
            path: RunningMoments(leaf.shape)
            for path, leaf in leaf_spaces(space)
            if isinstance(leaf, Box) and dtype_of(leaf) == "float32" and settings.norm_obs and self._chosen(path)
        }
        if settings.norm_obs and not self.moments:
            raise SettingsError(
                f"normalize: the observation {space} has no float part to normalise; set norm_obs = false"
            )
        if settings.sign_reward and settings.norm_reward:
            raise SettingsError("normalize: sign_reward and norm_reward exclude each other; set norm_reward = false")
        self.device, self.returns, self.return_moments = device, np.zeros(num_envs), RunningMoments(())
        self._scales: dict[str, tuple[Any, Any]] = {}
        self._refresh_observations()
        self._refresh_reward()

    def _chosen(self, path: str) -> bool:
        keys = self.settings.norm_obs_keys
        if keys is None:
            return True
        known = list(self.space.spaces) if isinstance(self.space, Dict) else []
        if wrong := sorted(set(keys) - set(known)):
            raise SettingsError(f"normalize: norm_obs_keys names {wrong}; this observation has the entries {known}")
        return any(path.startswith(f"observation[{key!r}]") for key in keys)

    def _refresh_observations(self) -> None:
        """Mean and factor of each leaf, float64: large offsets with small deviations must not cancel."""
        for path, moments in self.moments.items():
            factor = 1.0 / np.sqrt(moments.variance + self.settings.epsilon)
            self._scales[path] = moments.mean, factor

    def _refresh_reward(self) -> None:
        self._reward_factor = 1.0 / math.sqrt(self.return_moments.variance + self.settings.epsilon)

    def observe(self, features: Any) -> None:
        """Take observations [B, ..] into the statistics."""
        if self.training and self.moments:
            map_leaves(self.space, self._observe_leaf, features)
            self._refresh_observations()

    def _observe_leaf(self, path: str, leaf: Space, values: Tensor) -> None:
        if path in self.moments:
            self.moments[path].update(_array(values))

    def observe_rewards(self, reward: Tensor, ended: Tensor | None) -> None:
        """Take rewards [B] into the statistics; the return starts again where an episode `ended` [B] (None: nowhere)."""
        if not (self.training and self.settings.norm_reward):
            return
        self.returns = self.returns * self.gamma + _array(reward)
        self.return_moments.update(self.returns)
        if ended is not None:
            self.returns[_array(ended)] = 0.0
        self._refresh_reward()

    def flat(self) -> tuple[Any, Any, float]:
        """(mean, factor, bound) for observations as one vector [F]; entries that are not normalised have 0 and 1."""
        entries = float_entries(self.space)
        mean, factor = np.zeros(len(entries)), np.ones(len(entries))
        if self.moments:
            mean[entries] = np.concatenate([np.ravel(moments.mean) for moments in self.moments.values()])
            spread = np.concatenate([np.ravel(moments.variance) for moments in self.moments.values()])
            factor[entries] = 1.0 / np.sqrt(spread + self.settings.epsilon)
        return mean, factor, self.settings.clip_obs

    def merge(self, seen: Moments | None) -> None:
        """Take in the moments of observations seen elsewhere, as `rlsdk.environments.trials` gives them."""
        if seen is None or not self.training:
            return
        entries, start = float_entries(self.space), 0
        mean, squares = seen.mean[entries], seen.squares[entries]
        for moments in self.moments.values():
            end = start + np.size(moments.mean)
            shape = np.shape(moments.mean)
            moments.merge(seen.count, mean[start:end].reshape(shape), squares[start:end].reshape(shape) / seen.count)
            start = end
        self._refresh_observations()

    def normalized(self, features: Any) -> Any:
        """Observations [N, ..] as networks see them."""
        return map_leaves(self.space, self._normalize_leaf, features) if self.moments else features

    def _normalize_leaf(self, path: str, leaf: Space, values: Tensor) -> Tensor:
        if path not in self._scales:
            return values
        shift, factor = self._scales[path]
        if values.is_cpu and not torch.compiler.is_exporting():  # numpy, as for the moments
            return torch.from_numpy(_clipped((values.numpy() - shift) * factor, self.settings.clip_obs))
        scaled = (values - self._on_device(shift)) * self._on_device(factor)
        return scaled.clamp(-self.settings.clip_obs, self.settings.clip_obs).float()

    def _on_device(self, value: Any) -> Tensor:
        return torch.from_numpy(np.asarray(value)).to(self.device)

    def normalized_reward(self, reward: Tensor) -> Tensor:
        """Rewards [N] as algorithms see them."""
        if not self.settings.norm_reward:
            return reward
        if reward.is_cpu:
            return torch.from_numpy(_clipped(reward.numpy() * self._reward_factor, self.settings.clip_reward))
        return (reward * self._reward_factor).clamp(-self.settings.clip_reward, self.settings.clip_reward)

    # --- for users: numpy in, numpy out ----------------------------------------------------------------------------

    def normalize_obs(self, observation: Any) -> Any:
        """One observation or a batch, normalised; the statistics do not change."""
        return self._in_numpy(self._normalize_leaf, observation)

    def unnormalize_obs(self, observation: Any) -> Any:
        """The inverse, up to clipping."""
        return self._in_numpy(self._restore_leaf, observation)

    def _restore_leaf(self, path: str, leaf: Space, values: Tensor) -> Tensor:
        if path not in self._scales:
            return values
        shift, factor = map(self._on_device, self._scales[path])
        return (values / factor + shift).float()

    def _in_numpy(self, function: Any, observation: Any) -> Any:
        def convert(path: str, leaf: Space, value: Any) -> Any:
            return function(path, leaf, torch.as_tensor(value, device=self.device)).numpy(force=True)

        return map_leaves(self.space, convert, observation)

    def normalize_reward(self, reward: Any) -> Any:
        """Rewards, normalised; the statistics do not change."""
        return self.normalized_reward(torch.as_tensor(reward, dtype=torch.float32)).numpy(force=True)

    def unnormalize_reward(self, reward: Any) -> Any:
        """The inverse, up to clipping."""
        factor = self._reward_factor if self.settings.norm_reward else 1.0
        return (torch.as_tensor(reward, dtype=torch.float32) / factor).numpy(force=True)

    # --- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        leaves = {f"{i:03d}": moments.state_dict() for i, moments in enumerate(self.moments.values())}
        rewards = {**self.return_moments.state_dict(), "returns": torch.tensor(self.returns)}
        return {"observation": leaves, "reward": rewards}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError when the statistics are of other shapes."""
        stored = state["observation"]
        if len(stored) != len(self.moments):
            raise ValueError(
                f"normaliser of {len(stored)} observation parts, but this agent normalises {len(self.moments)}"
            )
        for i, moments in enumerate(self.moments.values()):
            moments.load_state_dict(stored[f"{i:03d}"])
        self.return_moments.load_state_dict(state["reward"])
        returns = torch.as_tensor(state["reward"]["returns"]).double().cpu().numpy()
        if returns.shape == self.returns.shape:  # another number of environments starts them anew
            self.returns = returns.copy()
        self._refresh_observations()
        self._refresh_reward()


def _array(values: Tensor) -> Any:
    """As numpy; `force` costs as much again where it is not needed."""
    return values.numpy() if values.is_cpu and not values.requires_grad else values.numpy(force=True)


def _clipped(values: Any, bound: float) -> Any:
    """float32, within +-bound; a new array."""
    return np.asarray(np.minimum(np.maximum(values, -bound), bound), np.float32)
