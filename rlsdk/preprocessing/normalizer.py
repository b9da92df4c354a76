"""The statistics of an agent: of its observations and of its rewards."""

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
"""What a normaliser has that can be set."""
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
"""Members of the documented wrapper that a normaliser lacks, and what to use."""


class Normalizer:
    """`observations` and `rewards`, each with its statistics; `training = False` freezes both."""

    def __init__(self, space: Space, settings: Normalization, gamma: float, num_envs: int, device: str) -> None:
        """Raises SettingsError: as `ObservationNormalizer` and `RewardScale`."""
        self.space, self.settings, self.device = space, settings, device
        self.observations = ObservationNormalizer(space, settings)
        self.rewards = RewardScale(settings, gamma if settings.gamma is None else settings.gamma, num_envs)

    def __getattr__(self, name: str) -> object:
        """Settings are read here too: `norm_reward`, `clip_obs` and so on."""
        if name in SETTINGS and "settings" in vars(self):
            return getattr(self.settings, name)
        hint = f"; {INSTEAD[name]}" if name in INSTEAD else ""
        raise UnknownAttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def __setattr__(self, name: str, value: object) -> None:
        """Raises UsageError for what would have no effect: a setting, or an unknown name."""
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
        """The statistics of each part of observations that is normalised, by its path."""
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
        """Which statistics rollouts do not change, `observations` and `rewards`."""
        return {"observations": not self.observations.training, "rewards": not self.rewards.training}

    def freeze(self, frozen: State) -> None:
        """Put back what `frozen` gave. Raises KeyError or ValueError for something else."""
        if not all(isinstance(value, bool) for value in frozen.values()):
            raise ValueError(f"frozen statistics are True or False, not {dict(frozen)}")
        self.observations.training, self.rewards.training = not frozen["observations"], not frozen["rewards"]

    def flat(self) -> tuple[Vector, Vector, Vector]:
        """(mean, factor, bound), float64 [F] each, of observations as one vector; see `ObservationNormalizer.flat`."""
        return self.observations.flat()

    def merge(self, seen: Moments | None) -> None:
        """Take in the moments [F] of observations seen elsewhere; see `ObservationNormalizer.merge`."""
        self.observations.merge(seen)

    # --- for users: numpy in, numpy out ----------------------------------------------------------------------------

    def normalize_obs(self, observation: Features) -> Features:
        """One observation or a batch, numpy [*shape] or [N, *shape] per leaf, normalised; the statistics do not change."""
        return self._in_numpy(LeafNormalizer.normalize, observation)

    def unnormalize_obs(self, observation: Features) -> Features:
        """The inverse, up to clipping."""
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
        """Rewards of any shape, normalised; the statistics do not change."""
        return self.rewards.normalize(torch.as_tensor(reward, dtype=torch.float32)).numpy(force=True)

    def unnormalize_reward(self, reward: ArrayLike) -> NDArray[np.float32]:
        """The inverse, up to clipping."""
        return self.rewards.denormalize(torch.as_tensor(reward, dtype=torch.float32)).numpy(force=True)

    # --- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, State]:
        """Both statistics."""
        return {"observation": self.observations.state_dict(), "reward": self.rewards.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Raises ValueError when the statistics are of other shapes."""
        self.observations.load_state_dict(state["observation"])
        self.rewards.load_state_dict(state["reward"])
