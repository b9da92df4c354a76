"""Running normalisation of observations, before they enter a policy's encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from rlsdk.errors import SettingsError
from rlsdk.networks.leaf_normalizer import LeafNormalizer
from rlsdk.networks.numpy_encoder import encoded_slices
from rlsdk.networks.running_moments import Moments, RunningMoments, Vector
from rlsdk.records import Features
from rlsdk.settings.preprocessing import Normalization
from rlsdk.spaces import Box, Dict, Space, dtype_of, leaf_spaces, map_leaves
from rlsdk.tree import map_tensors

if TYPE_CHECKING:
    from rlsdk.interfaces import State


class ObservationNormalizer:
    """Normalises observations to (x - mean) / sqrt(variance + epsilon), leaf by leaf. Images and discrete leaves do not
    change.

    Calling the object does not change the statistics. `update` and `merge` do, unless `training` is False.
    """

    def __init__(self, space: Space, settings: Normalization) -> None:
        """Raises SettingsError if there is nothing to normalise, or if `norm_obs_keys` names an unknown entry."""
        self.space, self.settings, self.training = space, settings, True
        self.leaves = {
            path: LeafNormalizer(leaf.shape, settings)
            for path, leaf in leaf_spaces(space)
            if isinstance(leaf, Box) and dtype_of(leaf) == "float32" and settings.norm_obs and self._chosen(path)
        }
        if settings.norm_obs and not self.leaves and not settings.where_possible:
            raise SettingsError(
                f"normalize: the observation {space} has no float part to normalise; set norm_obs = false"
            )
        self._only = self.leaves.get("observation")
        """The normaliser of the single leaf, if observations are one Box."""

    def _chosen(self, path: str) -> bool:
        keys = self.settings.norm_obs_keys
        if keys is None:
            return True
        known = list(self.space.spaces) if isinstance(self.space, Dict) else []
        if wrong := sorted(set(keys) - set(known)):
            raise SettingsError(f"normalize: norm_obs_keys names {wrong}; this observation has the entries {known}")
        return any(path.startswith(f"observation[{key!r}]") for key in keys)

    @property
    def moments(self) -> dict[str, RunningMoments]:
        """The statistics of each leaf that is normalised."""
        return {path: leaf.moments for path, leaf in self.leaves.items()}

    def __call__(self, features: Features) -> Features:
        """Normalise observations [.., *shape] per leaf with the current statistics, as networks receive them."""
        if self._only is not None:
            return self._only.normalize(features)
        return self.map_leaves(LeafNormalizer.normalize, features) if self.leaves else features

    def collected(self, features: Features) -> Features:
        """The same as calling the object, but faster, for collected observations [.., *shape] per leaf, which have no graph."""
        if self._only is not None:
            return self._only.normalize_detached(features)
        return self.map_leaves(LeafNormalizer.normalize_detached, features) if self.leaves else features

    def by_row(self, raw: Tensor, into: Tensor) -> Callable[[int], object]:
        """Return a function of t that writes `collected(raw[t])` to `into[t]`, for observations of one leaf, [T, B, *shape]."""
        if self._only is not None:
            return self._only.by_row(raw, into)
        return lambda t: into[t].copy_(raw[t])

    def denormalize(self, features: Features) -> Features:
        """Compute the original observations [.., *shape] per leaf from normalised ones, up to clipping."""
        return self.map_leaves(LeafNormalizer.denormalize, features)

    def map_leaves(self, function: Callable[[LeafNormalizer, Tensor], object], features: Features) -> Features:
        """Apply `function(leaf normaliser, values [.., *leaf])` to the normalised leaves; the other leaves do not change."""
        leaves = self.leaves
        return map_leaves(
            self.space,
            lambda path, _, values: function(leaves[path], values) if path in leaves else values,
            features,
        )

    def update(self, features: Features, rows: Tensor | None = None) -> None:
        """Add observations [N, *shape] per leaf to the statistics; with `rows`, bool [N], only those rows."""
        if not self.training or not self.leaves:
            return
        if rows is not None:
            if not bool(rows.any()):
                return
            features = map_tensors(lambda leaf: leaf[rows], features)
        if self._only is not None:
            self._only.update(features)
        else:
            self.map_leaves(LeafNormalizer.update, features)

    # --- for population methods, which act in numpy --------------------------------------------------------------------

    def flat(self) -> tuple[Vector, Vector, Vector]:
        """Return (mean, factor, bound), float64 [F] each, for observations encoded as one vector.

        Entries that are not normalised have 0, 1 and infinity.
        """
        slices = encoded_slices(self.space)
        size = max((part.stop for part in slices.values()), default=0)
        mean, factor, bound = np.zeros(size), np.ones(size), np.full(size, np.inf)
        for path, leaf in self.leaves.items():
            where = slices[path]
            mean[where], factor[where] = leaf.mean.numpy().ravel(), 1.0 / leaf.deviation.numpy().ravel()
            bound[where] = leaf.bound
        return mean, factor, bound

    def merge(self, seen: Moments | None) -> None:
        """Add the moments [F] of observations from `rlsdk.training.population_episodes` to the statistics."""
        if seen is None or not self.training:
            return
        slices = encoded_slices(self.space)
        for path, leaf in self.leaves.items():
            shape = leaf.moments.mean_variance[0].shape
            mean, squares = (values[slices[path]].reshape(shape) for values in (seen.mean, seen.squares))
            leaf.moments.merge(seen.count, mean, squares / seen.count)
            leaf.refresh()

    # --- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """The moments [*leaf] of each normalised leaf, by the number of the leaf."""
        return {f"{i:03d}": leaf.moments.state_dict() for i, leaf in enumerate(self.leaves.values())}

    def load_state_dict(self, state: Mapping[str, State]) -> None:
        """Restore the statistics. Raises ValueError if they have other shapes."""
        if len(state) != len(self.leaves):
            raise ValueError(
                f"normaliser of {len(state)} observation parts, but this agent normalises {len(self.leaves)}"
            )
        for i, leaf in enumerate(self.leaves.values()):
            leaf.moments.load_state_dict(state[f"{i:03d}"])
            leaf.refresh()
