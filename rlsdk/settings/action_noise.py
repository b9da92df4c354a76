"""Noise added to actions in [-1, 1] (unit actions). These classes are settings and import no torch; `NoisyPolicy` applies
them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs
import numpy as np
from numpy.typing import ArrayLike

from rlsdk.errors import SettingsError, UsageError, suggest
from rlsdk.settings.fields import is_float32

if TYPE_CHECKING:
    from torch import Generator, Tensor


def _numbers(value: ArrayLike) -> tuple[float, ...]:
    numbers = tuple(float(v) for v in np.ravel(value))
    if not numbers or not all(is_float32(v) for v in numbers):
        raise SettingsError(f"action noise needs finite numbers, got {value!r}")
    return numbers


def _deviations(value: ArrayLike) -> tuple[float, ...]:
    numbers = _numbers(value)
    if min(numbers) < 0.0:
        raise SettingsError(f"action noise: sigma must not be negative, got {value!r}")
    return numbers


def _standard_normal(like: Tensor, generator: Generator) -> Tensor:
    # Imported here: settings are read by commands that do without torch.
    import torch

    return torch.randn(like.shape, generator=generator, device=like.device)


@attrs.frozen
class NormalActionNoise:
    """Independent Gaussian noise for unit actions. `mean` and `sigma` are one number, or one number per action dimension."""

    mean: tuple[float, ...] = attrs.field(converter=_numbers)
    sigma: tuple[float, ...] = attrs.field(converter=_deviations)

    def started(self, state: Tensor, is_first: Tensor) -> Tensor:
        """Return the state [B, A] before a step: 0 where an episode starts (`is_first`, bool [B]), else `state`."""
        return state.masked_fill(is_first.unsqueeze(-1), 0.0)

    def step(self, state: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return (noise [B, A], next state [B, A]). This noise has no memory, so the state does not change."""
        noise = state.new_tensor(self.mean) + state.new_tensor(self.sigma) * _standard_normal(state, generator)
        return noise, state

    def to_setting(self) -> dict[str, object]:
        return {"kind": "normal", "mean": list(self.mean), "sigma": list(self.sigma)}


@attrs.frozen
class OrnsteinUhlenbeckActionNoise:
    """Ornstein-Uhlenbeck process: x' = x + theta (mean - x) dt + sigma sqrt(dt) n, with n standard normal.

    Every episode starts at `initial_noise`: one number, or one number per action dimension; None means 0.
    """

    mean: tuple[float, ...] = attrs.field(converter=_numbers)
    sigma: tuple[float, ...] = attrs.field(converter=_deviations)
    theta: float = attrs.field(default=0.15, converter=float)
    dt: float = attrs.field(default=1e-2, converter=float)
    initial_noise: tuple[float, ...] | None = attrs.field(default=None, converter=attrs.converters.optional(_numbers))

    def started(self, state: Tensor, is_first: Tensor) -> Tensor:
        """Return the state [B, A] before a step: `initial_noise` where an episode starts (`is_first`, bool [B]), else
        `state`."""
        if self.initial_noise is None:
            return state.masked_fill(is_first.unsqueeze(-1), 0.0)
        first = state.new_tensor(self.initial_noise).expand_as(state)
        return first.where(is_first.unsqueeze(-1), state)

    def step(self, state: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return (noise [B, A], next state [B, A]). The noise is the next state."""
        drift = self.theta * (state.new_tensor(self.mean) - state) * self.dt
        diffusion = state.new_tensor(self.sigma) * math.sqrt(self.dt) * _standard_normal(state, generator)
        following = state + drift + diffusion
        return following, following

    def to_setting(self) -> dict[str, object]:
        table = {"mean": list(self.mean), "sigma": list(self.sigma), "theta": self.theta, "dt": self.dt}
        first = {} if self.initial_noise is None else {"initial_noise": list(self.initial_noise)}
        return {"kind": "ornstein-uhlenbeck", **table, **first}


ActionNoise = NormalActionNoise | OrnsteinUhlenbeckActionNoise
KINDS: dict[str, Callable[..., ActionNoise]] = {
    "normal": NormalActionNoise,
    "ornstein-uhlenbeck": OrnsteinUhlenbeckActionNoise,
}


def require_noise_stays(before: ActionNoise | None, now: ActionNoise | None) -> None:
    """Check that a change of settings neither adds noise to an existing agent nor removes it.

    Both would need another policy for collecting.

    Raises:
        UsageError: exactly one of `before` and `now` is None.
    """
    if (before is None) != (now is None):
        raise UsageError(
            "action_noise cannot begin or end while the agent lives; give noise with sigma = 0, or"
            " load(path, action_noise=value)"
        )


def as_action_noise(value: Mapping[str, object] | ActionNoise | None) -> ActionNoise | None:
    """Return a noise object, given the object, a table such as `{kind = "normal", mean = 0, sigma = 0.1}`, or None.

    Raises:
        SettingsError: the value is something else, or the table has wrong fields.
    """
    if value is None or isinstance(value, NormalActionNoise | OrnsteinUhlenbeckActionNoise):
        return value
    kind = value.get("kind") if isinstance(value, Mapping) else value
    if isinstance(value, str) and value in KINDS:
        raise SettingsError(
            f"action_noise {value!r} needs its numbers; give a table such as {{kind = {value!r}, mean = 0, sigma = 0.1}}"
        )
    if not isinstance(value, Mapping) or not isinstance(kind, str) or kind not in KINDS:
        raise SettingsError(
            f"action_noise {kind!r} is not a kind of noise; {suggest(str(kind), KINDS)}; give"
            " rlsdk.exploration.NormalActionNoise, OrnsteinUhlenbeckActionNoise or a table"
        )
    fields = {k: v for k, v in value.items() if k != "kind"}
    try:
        return KINDS[kind](**fields)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"action_noise {value!r}: {error}") from None
