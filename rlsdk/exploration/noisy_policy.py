"""A policy with action noise on top."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from rlsdk.exploration.action_noise import ActionNoise
from rlsdk.interfaces import Policy
from rlsdk.networks.action_scale import ActionScale
from rlsdk.records import Act, Observation


@dataclass(frozen=True, slots=True, eq=False)
class NoiseCarry:
    """The noise process of each environment, float32 [B, A], and the inner policy's carry."""

    noise: Tensor
    inner: Any


class NoisyPolicy:
    """Adds noise to the unit actions of `inner` and clips them to [-1, 1]; deterministic actions stay as they are."""

    def __init__(self, inner: Policy[Any, Any], noise: ActionNoise, scale: ActionScale) -> None:
        self.inner, self.noise, self.scale = inner, noise, scale

    def initial_carry(self, batch: int) -> NoiseCarry:
        zeros = torch.zeros(batch, self.scale.size, device=self.scale.low.device)
        return NoiseCarry(zeros, self.inner.initial_carry(batch))

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: NoiseCarry, *, deterministic: bool, generator: Generator
    ) -> Act[NoiseCarry, Any]:
        act = self.inner.act(observation, carry.inner, deterministic=deterministic, generator=generator)
        if deterministic:
            return replace(act, carry=NoiseCarry(carry.noise, act.carry))
        state = carry.noise.masked_fill(observation.is_first.unsqueeze(-1), 0.0)
        noise, state = self.noise.step(state, generator)
        unit = (self.scale.to_unit(act.action) + noise).clamp(-1.0, 1.0)
        return Act(self.scale.to_environment(unit), NoiseCarry(state, act.carry), act.extras)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.inner.state_dict())

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)
