"""The normaliser of an agent: running statistics of its observations and rewards."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlsdk.errors import UnknownAttributeError, UsageError, suggest
from rlsdk.interfaces import State
from rlsdk.networks.leaf_normalizer import LeafNormalizer
from rlsdk.networks.observation_normalizer import ObservationNormalizer
from rlsdk.networks.running_moments import Moments, RunningMoments, Vector
from rlsdk.preprocessing.rewards import RewardScale
from rlsdk.records import Features
from rlsdk.settings.preprocessing import Normalization
from rlsdk.spaces import Space, map_leaves, shape_of

SETTINGS = frozenset(field.name for field in attrs.fields(Normalization))
ATTRIBUTES = ("space", "settings", "device", "observations", "rewards", "training")
"""The attributes of a normaliser that can be assigned."""
INSTEAD = {
    "get_original_obs": "observations of model.get_env() are the environment's own",
    "get_original_reward": "rewards of model.get_env() are the environment's own",
    "obs_rms": "moments['observation'] has mean, variance and count; with Dict observations there is an entry for each part",
    "reset": "step model.get_env()",
    "ret_rms": "rewards.moments has the statistics of returns",
    "save": "model.save(path) stores the statistics with the agent",
    "step": "step model.get_env()",
    "venv": "model.get_env() is the environment",
}
"""Members of stable-baselines3's `VecNormalize` that a normaliser lacks, and their replacements."""


class Normalizer:
    """Normalises observations and rewards by running statistics.

    `observations` normalises observations, `rewards` normalises rewards. `training = False` freezes the statistics of both.
    """

    def __init__(self, space: Space, settings: Normalization, gamma: float, num_envs: int, device: str) -> None:
        """Raises SettingsError: there is nothing to normalise, the settings exclude each other, or `norm_obs_keys` is wrong."""
        self.space, self.settings, self.device = space, settings, device
        self.observations = ObservationNormalizer(space, settings)
        self.rewards = RewardScale(settings, gamma if settings.gamma is None else settings.gamma, num_envs)

    def __getattr__(self, name: str) -> object:
        """The setting `name`, such as `norm_reward` or `clip_obs`. Raises UnknownAttributeError for other names."""
        if name in SETTINGS and "settings" in vars(self):
            return getattr(self.settings, name)
        hint = f"; {INSTEAD[name]}" if name in INSTEAD else ""
        raise UnknownAttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute. Raises UsageError for a setting or an unknown name, because setting these has no effect."""
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
        """The path of each part of observations that is normalised -> its statistics."""
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

    def flat(self) -> tuple[Vector, Vector, Vector]:
        """(mean, factor, bound), float64 [F] each, for observations as one vector; see `ObservationNormalizer.flat`."""
        return self.observations.flat()

    def merge(self, seen: Moments | None) -> None:
        """Add moments [F] of observations from other processes to the statistics; see `ObservationNormalizer.merge`."""
        self.observations.merge(seen)

    # --- for users: numpy in, numpy out ----------------------------------------------------------------------------

    def normalize_obs(self, observation: Features) -> Features:
        """Normalise one observation or a batch, numpy [*shape] or [N, *shape] per leaf. The statistics do not change."""
        return self._in_numpy(LeafNormalizer.normalize, observation)

    def unnormalize_obs(self, observation: Features) -> Features:
        """The inverse of `normalize_obs`, except for clipping."""
        return self._in_numpy(LeafNormalizer.denormalize, observation)

    def _in_numpy(self, function: Callable[[LeafNormalizer, Tensor], Tensor], observation: Features) -> Features:
        leaves = self.observations.leaves

        def convert(path: str, leaf: Space, value: ArrayLike) -> NDArray[np.generic]:
            values = torch.as_tensor(value, device=self.device)
            single = values.dim() == len(shape_of(leaf))
            rows = values.unsqueeze(0) if single else values
            found = function(leaves[path], rows) if path in leaves else rows
            return (found[0] if single else found).numpy(force=True)

        return map_leaves(self.space, convert, observation)

    def normalize_reward(self, reward: ArrayLike) -> NDArray[np.float32]:
        """Normalise rewards of any shape. The statistics do not change."""
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
