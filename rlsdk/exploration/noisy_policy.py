"""A policy that adds noise to the actions of another policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk.errors import SettingsError, UsageError
from rlsdk.exploration.extras import extras_of_other_action
from rlsdk.interfaces import Policy, Reconfigurable, State
from rlsdk.networks.action_scale import ActionScale
from rlsdk.records import Act, Observation
from rlsdk.settings.action_noise import ActionNoise
from rlsdk.settings.off_policy import ContinuousOffPolicyConfig

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


@dataclass(frozen=True, slots=True, eq=False)
class NoiseCarry(Generic[CarryT]):
    """The carry of a `NoisyPolicy`: the noise state of each environment, float32 [B, A], and the inner policy's carry."""

    noise: Tensor
    inner: CarryT


class NoisyPolicy(Generic[CarryT, ExtrasT]):
    """Scales the actions of the policy `inner` to [-1, 1], adds noise, and clips them to [-1, 1].

    Deterministic actions get no noise.
    """

    def __init__(self, inner: Policy[CarryT, ExtrasT], noise: ActionNoise, scale: ActionScale) -> None:
        """Raises SettingsError: a parameter of the noise has neither one number nor one number per action dimension."""
        self.inner, self.noise, self.scale = inner, noise, scale
        self._remembers = getattr(inner, "action_played", None) is not None
        for name in ("mean", "sigma", "initial_noise"):
            numbers = getattr(noise, name, None)
            if numbers is not None and len(numbers) not in (1, scale.size):
                raise SettingsError(
                    f"action_noise: {name} has {len(numbers)} numbers, actions have {scale.size} dimensions; give one number,"
                    f" or {scale.size}"
                )

    def initial_carry(self, batch: int) -> NoiseCarry[CarryT]:
        zeros = torch.zeros(batch, self.scale.size, device=self.scale.low.device)
        return NoiseCarry(zeros, self.inner.initial_carry(batch))

    @property
    def begin_rollout(self) -> Callable[[NoiseCarry[CarryT]], NoiseCarry[CarryT]] | None:
        """The function `begin_rollout` of the inner policy, see `Policy`; None where it has none."""
        begin = getattr(self.inner, "begin_rollout", None)
        return None if begin is None else lambda carry: NoiseCarry(carry.noise, begin(carry.inner))

    @property
    def action_played(self) -> Callable[[NoiseCarry[CarryT], Tensor], NoiseCarry[CarryT]] | None:
        """`action_played` (carry, actions [B, ..]) of the inner policy, see `RemembersActions`; None without one."""
        played = getattr(self.inner, "action_played", None)
        return None if played is None else lambda carry, action: NoiseCarry(carry.noise, played(carry.inner, action))

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: NoiseCarry[CarryT], *, deterministic: bool, generator: Generator
    ) -> Act[NoiseCarry[CarryT], object]:
        act = self.inner.act(observation, carry.inner, deterministic=deterministic, generator=generator)
        if deterministic:
            return Act(act.action, NoiseCarry(carry.noise, act.carry), act.extras)
        noise, state = self.noise.step(self.noise.started(carry.noise, observation.is_first), generator)
        unit = (self.scale.to_unit(act.action) + noise).clamp(-1.0, 1.0)
        extras: object = act.extras
        if not (isinstance(extras, tuple) and not extras):
            extras = extras_of_other_action(extras, None)
        action, inner = self.scale.to_environment(unit), act.carry
        if self._remembers:
            inner = self.inner.action_played(inner, action)  # type: ignore[attr-defined]
        return Act(action, NoiseCarry(state, inner), extras)

    def reconfigure(self, config: ContinuousOffPolicyConfig) -> None:
        """Take the noise from new settings, and pass the settings on to the inner policy.

        Raises:
            UsageError: the new `action_noise` is None. An agent without noise needs another policy.
        """
        if config.action_noise is None:
            raise UsageError("action_noise cannot end while the agent lives; give noise with sigma = 0")
        self.noise = config.action_noise
        if isinstance(self.inner, Reconfigurable):
            self.inner.reconfigure(config)

    def state_dict(self) -> State:
        return dict(self.inner.state_dict())

    def load_state_dict(self, state: object) -> None:
        self.inner.load_state_dict(state)
