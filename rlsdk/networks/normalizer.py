"""Running normalization of observations, before they enter a policy's encoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlsdk.errors import SettingsError
from rlsdk.kernels import factory
from rlsdk.records import Features
from rlsdk.settings.agent_config import Normalization
from rlsdk.spaces import Box, Dict, Space, dtype_of, leaf_spaces, map_leaves
from rlsdk.tree import map_tensors

if TYPE_CHECKING:
    from rlsdk.interfaces import State


class ObservationNormalizer:
    """Normalizes observations to (x - mean) / sqrt(variance + epsilon), leaf by leaf. Images and discrete leaves do not
    change.

    Calling the object does not change the statistics. `update` does, unless `training` is False.
    """

    def __init__(self, space: Space, settings: Normalization) -> None:
        """Raises SettingsError if there is nothing to normalize, or if `norm_obs_keys` names an unknown entry."""
        self.space, self.settings, self.training = space, settings, True
        self.moments = {
            path: RunningMoments(leaf.shape, settings.epsilon, settings.clip_obs)
            for path, leaf in leaf_spaces(space)
            if isinstance(leaf, Box) and dtype_of(leaf) == "float32" and settings.norm_obs and self._chosen(path)
        }
        """The statistics of each leaf that is normalized, by its path."""
        if settings.norm_obs and not self.moments and not settings.where_possible:
            raise SettingsError(
                f"normalize: the observation {space} has no float part to normalize; set norm_obs = false"
            )
        # most observations are one Box, for which walking through the space costs more than the arithmetic
        self._only = self.moments.get("observation")
        """The normalizer of the single leaf, if observations are one Box."""

    def _chosen(self, path: str) -> bool:
        keys = self.settings.norm_obs_keys
        if keys is None:
            return True
        known = list(self.space.spaces) if isinstance(self.space, Dict) else []
        if wrong := sorted(set(keys) - set(known)):
            raise SettingsError(f"normalize: norm_obs_keys names {wrong}; this observation has the entries {known}")
        return any(path.startswith(f"observation[{key!r}]") for key in keys)

    def __call__(self, features: Features) -> Features:
        """Normalize observations [.., *shape] per leaf with the current statistics, as networks receive them."""
        if self._only is not None:
            return self._only.normalize(features)
        return self.map_leaves(RunningMoments.normalize, features) if self.moments else features

    def collected(self, features: Features) -> Features:
        """The same as calling the object, but faster, for collected observations [.., *shape] per leaf, which have no graph."""
        if self._only is not None:
            return self._only.normalize_detached(features)
        return self.map_leaves(RunningMoments.normalize_detached, features) if self.moments else features

    def by_row(self, raw: Tensor, into: Tensor) -> Callable[[int], object]:
        """Return a function of t that writes `collected(raw[t])` to `into[t]`, for observations of one leaf, [T, B, *shape]."""
        if self._only is not None:
            return self._only.by_row(raw, into)
        return lambda t: into[t].copy_(raw[t])

    def map_leaves(self, function: Callable[[RunningMoments, Tensor], object], features: Features) -> Features:
        """Apply `function(leaf normalizer, values [.., *leaf])` to the normalized leaves; the other leaves do not change."""
        leaves = self.moments
        return map_leaves(
            self.space,
            lambda path, _, values: function(leaves[path], values) if path in leaves else values,
            features,
        )

    def update(self, features: Features, rows: Tensor | None = None) -> None:
        """Add observations [N, *shape] per leaf to the statistics; with `rows`, bool [N], only those rows."""
        if not self.training or not self.moments:
            return
        if rows is not None:
            # the mean of no rows is NaN, and would stay in the statistics
            if not bool(rows.any()):
                return
            features = map_tensors(lambda leaf: leaf[rows], features)
        if self._only is not None:
            self._only.update(features)
        else:
            self.map_leaves(RunningMoments.update, features)

    # --- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """The moments [*leaf] of each normalized leaf, by the number of the leaf."""
        # by number, because paths hold keys of users, which may have any character
        return {f"{i:03d}": leaf.state_dict() for i, leaf in enumerate(self.moments.values())}

    def load_state_dict(self, state: Mapping[str, State]) -> None:
        """Restore the statistics. Raises ValueError if they have other shapes."""
        if len(state) != len(self.moments):
            raise ValueError(
                f"normalizer of {len(state)} observation parts, but this agent normalizes {len(self.moments)}"
            )
        for i, leaf in enumerate(self.moments.values()):
            leaf.load_state_dict(state[f"{i:03d}"])


Vector = NDArray[np.float64]
Floats = NDArray[np.floating]
FIRST_COUNT = 1e-4
"""The weight of the initial values, mean 0 and variance 1."""
FEW = 1024
"""Up to this number of values, numpy normalizes faster than torch."""


class SharedArray:
    """A numpy array of zeros, float64 [*shape], and a tensor in the same memory. A copy of the object has its own memory."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.array: Vector = np.zeros(shape)
        self.tensor = torch.from_numpy(self.array)

    def __getstate__(self) -> Vector:
        return self.array

    def __setstate__(self, values: Vector) -> None:
        self.array = values
        self.tensor = torch.from_numpy(values)


class RunningMoments:
    """The mean and (population) variance of all values so far, float64 [*shape], which also normalize values.

    `normalize` computes (x - mean) / sqrt(variance + epsilon), clipped to +-`bound`, as float32. The difference is computed
    in float64, so that large offsets with small deviations do not cancel.

    It uses numpy, because a few numbers are updated at every environment step, for which calls of torch take several
    times as long; torch reads the same memory. Arrays have the shape [1, *shape] of a single observation, because
    broadcasting costs as much as another operation.
    """

    def __init__(self, shape: tuple[int, ...], epsilon: float = 0.0, bound: float = math.inf) -> None:
        self.mean_variance: tuple[Vector, Vector] = np.zeros((1, *shape)), np.ones((1, *shape))
        """Mean and variance, float64 [1, *shape]."""
        # a tiny count instead of 0, as the peers have it, so that equal data give equal statistics
        self.count, self.epsilon, self.bound = FIRST_COUNT, epsilon, bound
        self._center, self._deviation, self._row = (SharedArray((1, *shape)) for _ in range(3))
        self._compiled = factory.normalization()
        self._copies: tuple[Tensor, Tensor] | None = None
        """Copies of mean and deviation on the accelerator that was used last."""
        self.refresh()

    def refresh(self) -> None:
        """Compute again what normalizes values, from mean and variance."""
        mean, variance = self.mean_variance
        # in place, because kernels and tensors read this memory
        np.copyto(self._center.array, mean)
        np.sqrt(variance + self.epsilon, out=self._deviation.array)
        self._copies = None

    @property
    def mean(self) -> Vector:
        mean: Vector = self.mean_variance[0][0]
        return mean

    @property
    def variance(self) -> Vector:
        variance: Vector = self.mean_variance[1][0]
        return variance

    @property
    def center(self) -> Tensor:
        """The mean, float64 [1, *shape], at the last `refresh`."""
        return self._center.tensor

    @property
    def deviation(self) -> Tensor:
        """The deviation sqrt(variance + epsilon), float64 [1, *shape], at the last `refresh`."""
        return self._deviation.tensor

    def update(self, values: Tensor) -> None:
        """Add values [N, *shape]."""
        if (rows := len(values)) == 1:
            self._row.tensor.copy_(values)  # into memory that numpy shares: faster than converting the tensor
            self.merge(1, self._row.array, None)
        else:
            batch = values.numpy(force=not values.is_cpu or values.requires_grad)
            mean = np.add.reduce(batch, axis=0, dtype=np.float64, keepdims=True) / rows
            # squared distances from the mean of the batch: a sum of squares minus a square would cancel
            apart = batch - mean
            self.merge(rows, mean, np.add.reduce(apart * apart, axis=0, keepdims=True) / rows)
        self.refresh()

    def merge(self, rows: int, mean: Floats, variance: Vector | None) -> None:
        """Add `rows` values, given their mean and variance, [1, *shape]. For a single value, the variance is None."""
        self.mean_variance = self._with(rows, mean, variance)
        self.count += rows

    def update_row(self, values: Vector) -> Vector:
        """Add numbers [N] and return the new variance, [1]. Only for moments of shape (); equals `update_each`."""
        rows = len(values)
        if rows == 1:
            self.merge(1, values, None)
            return self.mean_variance[1]
        center = np.add.reduce(values) / rows
        # shifted by the mean first, because returns are large, similar numbers
        apart = values - center
        mean, squares = np.add.reduce(apart) / rows, np.add.reduce(apart * apart) / rows
        # rounding may leave a variance below 0, whose root is NaN
        self.merge(rows, np.array([center + mean]), np.array([max(squares - mean * mean, 0.0)]))
        return self.mean_variance[1]

    def update_each(self, batches: Vector, counted: NDArray[np.bool_] | None = None) -> Vector:
        """Add numbers [T, N] row by row and return the variance after each row, [T]. Only for moments of shape ().

        `counted`, bool [T, N], is True for the numbers that count; None = all.
        """
        if counted is None:
            rows, center = batches.shape[1] * np.arange(1, len(batches) + 1), batches.mean()
            apart = batches - center  # avoids cancellation for large, similar numbers
        elif counted.any():
            rows, center = counted.sum(1).cumsum(), batches[counted].mean()
            apart = np.where(counted, batches - center, 0.0)
        else:
            return np.repeat(self.mean_variance[1], len(batches))
        # the first rows may hold padding only
        divisor = np.maximum(rows, 1)
        mean = apart.sum(1).cumsum() / divisor
        spread = np.maximum((apart * apart).sum(1).cumsum() / divisor - mean * mean, 0.0)
        means, variances = self._with(rows, center + mean, spread)
        self.mean_variance, self.count = (means[-1:], variances[-1:]), self.count + int(rows[-1])
        return variances

    def _with(self, rows: int | NDArray[np.int64], mean: Floats, variance: Vector | None) -> tuple[Vector, Vector]:
        """(mean, variance) of the earlier values together with these."""
        before, spread = self.mean_variance
        delta, share = mean - before, rows / (self.count + rows)
        step = delta * share
        # Chan et al. 1979: the parts' variances, and the distance of their means
        spread = (spread + delta * step) * (1.0 - share)
        return before + step, spread if variance is None else spread + variance * share

    def normalize(self, values: Tensor) -> Tensor:
        """Normalize values [.., *shape] to float32, as networks receive them."""
        mean, deviation = self._on(values.device)
        # rounded to float32 last, because the difference of close float32 numbers would have few digits
        return values.sub(mean).div_(deviation).float().clamp_(-self.bound, self.bound)

    def normalize_detached(self, values: Tensor) -> Tensor:
        """Normalize like `normalize`, but faster, for values [.., *shape] without graph.

        Without compiled code, few numbers on the CPU are normalized in numpy: calls of torch take longer than the arithmetic.
        """
        if self._compiled is not None:
            found = self._compiled(values, self._center.tensor, self._deviation.tensor, self.bound)
            if found is not None:
                return found
        if values.numel() > FEW or not values.is_cpu:
            return self.normalize(values)
        scaled = values.numpy() - self._center.array
        scaled /= self._deviation.array
        return torch.from_numpy(np.minimum(np.maximum(scaled.astype(np.float32), -self.bound), self.bound))

    def by_row(self, values: Tensor, into: Tensor) -> Callable[[int], object]:
        """Return a function of t that normalizes `values[t]` to `into[t]`, for [T, .., *shape]."""
        if self._compiled is not None:
            found = self._compiled.by_row(values, into, self._center.tensor, self._deviation.tensor, self.bound)
            if found is not None:
                return found
        raw, given = values.unbind(), into.unbind()
        return lambda t: given[t].copy_(self.normalize_detached(raw[t]))

    def denormalize(self, values: Tensor) -> Tensor:
        """Compute the original values [.., *shape] from normalized ones, up to clipping."""
        mean, deviation = self._on(values.device)
        return (values * deviation + mean).float()

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(mean, deviation) on a device, float64 [1, *shape]."""
        if device.type == "cpu":
            return self._center.tensor, self._deviation.tensor
        if self._copies is None or self._copies[0].device != device:
            self._copies = self.center.to(device), self.deviation.to(device)
        return self._copies

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "mean": torch.tensor(self.mean, dtype=torch.float64),
            "variance": torch.tensor(self.variance, dtype=torch.float64),
            "count": torch.tensor(self.count, dtype=torch.float64),
        }

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Restore the statistics. Raises ValueError if they have another shape, or impossible values."""
        given = {name: torch.as_tensor(state[name]).double().cpu().numpy() for name in ("mean", "variance", "count")}
        for name, value in given.items():
            shape = () if name == "count" else self.mean.shape
            if value.shape != shape:
                raise ValueError(f"normalizer {name} of shape {value.shape}, but this agent's has {shape}")
            if not np.isfinite(value).all() or (name != "mean" and (value < 0.0).any()):
                raise ValueError(f"normalizer {name} holds values that no statistic can have")
        self.mean_variance = given["mean"][None].copy(), given["variance"][None].copy()
        self.count = float(given["count"])
        self.refresh()
