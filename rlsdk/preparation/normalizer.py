"""Running normalisation of observations and rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.trials import Moments, encoded_parts
from rlsdk.errors import SettingsError
from rlsdk.preparation.leaf_scale import LeafScale
from rlsdk.preparation.moments import RunningMoments
from rlsdk.preparation.rewards import RewardScale
from rlsdk.settings.preparation import Normalization
from rlsdk.spaces import Box, Dict, Space, dtype_of, leaf_spaces, map_leaves, shape_of


class Normalizer:
    """Observations become (x - mean) / sqrt(variance + epsilon), leaf by leaf; images and discrete leaves stay as they are.
    `rewards` does the same for rewards.

    `training = False` freezes the statistics.
    """

    def __init__(self, space: Space, settings: Normalization, gamma: float, num_envs: int, device: str) -> None:
        self.space, self.settings, self.device = space, settings, device
        self.scales = {
            path: LeafScale(leaf.shape, settings)
            for path, leaf in leaf_spaces(space)
            if isinstance(leaf, Box) and dtype_of(leaf) == "float32" and settings.norm_obs and self._chosen(path)
        }
        if settings.norm_obs and not self.scales:
            raise SettingsError(
                f"normalize: the observation {space} has no float part to normalise; set norm_obs = false"
            )
        self.rewards = RewardScale(settings, gamma if settings.gamma is None else settings.gamma, num_envs)

    @property
    def moments(self) -> dict[str, RunningMoments]:
        """The statistics of each leaf that is normalised."""
        return {path: scale.moments for path, scale in self.scales.items()}

    @property
    def training(self) -> bool:
        """Whether what is seen goes into the statistics."""
        return self.rewards.training

    @training.setter
    def training(self, value: bool) -> None:
        self.rewards.training = value

    def _chosen(self, path: str) -> bool:
        keys = self.settings.norm_obs_keys
        if keys is None:
            return True
        known = list(self.space.spaces) if isinstance(self.space, Dict) else []
        if wrong := sorted(set(keys) - set(known)):
            raise SettingsError(f"normalize: norm_obs_keys names {wrong}; this observation has the entries {known}")
        return any(path.startswith(f"observation[{key!r}]") for key in keys)

    def observe(self, features: Any, rows: Tensor | None = None) -> None:
        """Take observations [B, ..] into the statistics, or those of `rows`, bool [B]."""
        if not (self.rewards.training and self.scales) or (rows is not None and not bool(rows.any())):
            return

        def observe_leaf(path: str, leaf: Space, values: Tensor) -> None:
            if path in self.scales:
                self.scales[path].observe(values if rows is None else values[rows])

        map_leaves(self.space, observe_leaf, features)

    def seen(self, features: Any) -> Any:
        """`observe` and `normalized` at once."""
        if not self.rewards.training:
            return self.normalized(features)
        return map_leaves(self.space, self._seen_leaf, features) if self.scales else features

    def _seen_leaf(self, path: str, leaf: Space, values: Tensor) -> Tensor:
        return self.scales[path].seen(values) if path in self.scales else values

    def flat(self) -> tuple[Any, Any, Any]:
        """(mean, factor, bound), float64 [F] each, for observations as one vector; entries that are not normalised have 0, 1
        and infinity."""
        parts = encoded_parts(self.space)
        size = max((part.stop for part in parts.values()), default=0)
        mean, factor, bound = np.zeros(size), np.ones(size), np.full(size, np.inf)
        for path, scale in self.scales.items():
            middle, deviation = scale.known
            mean[parts[path]], factor[parts[path]] = middle.ravel(), 1.0 / deviation.ravel()
            bound[parts[path]] = scale.bound
        return mean, factor, bound

    def merge(self, seen: Moments | None) -> None:
        """Take in the moments of observations seen elsewhere, as `rlsdk.environments.trials` gives them."""
        if seen is None or not self.training:
            return
        parts = encoded_parts(self.space)
        for path, scale in self.scales.items():
            shape = scale.moments.kept[0].shape
            mean, squares = (values[parts[path]].reshape(shape) for values in (seen.mean, seen.squares))
            scale.moments.merge(seen.count, mean, squares / seen.count)
            scale.refresh()

    def normalized(self, features: Any) -> Any:
        """Observations [N, ..] as networks see them."""
        return map_leaves(self.space, self._normalize_leaf, features) if self.scales else features

    def _normalize_leaf(self, path: str, leaf: Space, values: Tensor) -> Tensor:
        return self.scales[path].normalized(values) if path in self.scales else values

    # --- for users: numpy in, numpy out ----------------------------------------------------------------------------

    def normalize_obs(self, observation: Any) -> Any:
        """One observation or a batch, normalised; the statistics do not change."""
        return self._in_numpy(self._normalize_leaf, observation)

    def unnormalize_obs(self, observation: Any) -> Any:
        """The inverse, up to clipping."""
        return self._in_numpy(self._restore_leaf, observation)

    def _restore_leaf(self, path: str, leaf: Space, values: Tensor) -> Tensor:
        return self.scales[path].restored(values) if path in self.scales else values

    def _in_numpy(self, function: Any, observation: Any) -> Any:
        def convert(path: str, leaf: Space, value: Any) -> Any:
            values = torch.as_tensor(value, device=self.device)
            single = values.dim() == len(shape_of(leaf))
            found = function(path, leaf, values.unsqueeze(0) if single else values)
            return (found[0] if single else found).numpy(force=True)

        return map_leaves(self.space, convert, observation)

    def normalize_reward(self, reward: Any) -> Any:
        """Rewards, normalised; the statistics do not change."""
        return self.rewards.normalized(torch.as_tensor(reward, dtype=torch.float32)).numpy(force=True)

    def unnormalize_reward(self, reward: Any) -> Any:
        """The inverse, up to clipping."""
        return self.rewards.restored(torch.as_tensor(reward, dtype=torch.float32)).numpy(force=True)

    # --- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        leaves = {f"{i:03d}": scale.moments.state_dict() for i, scale in enumerate(self.scales.values())}
        return {"observation": leaves, "reward": self.rewards.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError when the statistics are of other shapes."""
        stored = state["observation"]
        if len(stored) != len(self.scales):
            raise ValueError(
                f"normaliser of {len(stored)} observation parts, but this agent normalises {len(self.scales)}"
            )
        for i, scale in enumerate(self.scales.values()):
            scale.moments.load_state_dict(stored[f"{i:03d}"])
            scale.refresh()
        self.rewards.load_state_dict(state["reward"])
