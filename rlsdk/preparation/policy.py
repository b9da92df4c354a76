"""A policy for the world outside: it takes observations as the environment gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator

from rlsdk.interfaces import FillsExtras, Policy
from rlsdk.preparation import user_questions
from rlsdk.preparation.frames import FrameStacker
from rlsdk.preparation.normalizer import Normalizer
from rlsdk.records import Act, Observation, StepData
from rlsdk.tree import map_tensors


@dataclass(frozen=True, slots=True, eq=False)
class FramesCarry:
    """The last observations of each environment, [B, count - 1, ..] per leaf, and the inner policy's carry."""

    frames: Any
    inner: Any


class PreparedPolicy:
    """Stacks frames and normalises, then asks `inner`. Acting changes no statistics."""

    reader: Any = None
    """Given by the agent, see `rlsdk.agent.prediction.InputReader`; without one the methods for users take records only."""

    def __init__(
        self, inner: Policy[Any, Any], frames: FrameStacker | None, normalizer: Normalizer | None, device: str
    ) -> None:
        self.inner, self.frames, self.normalizer, self.device = inner, frames, normalizer, device

    def initial_carry(self, batch: int) -> Any:
        carry = self.inner.initial_carry(batch)
        return carry if self.frames is None else FramesCarry(self.frames.initial(batch, self.device), carry)

    @property
    def begin_rollout(self) -> Callable[[Any], Any] | None:
        """That of the inner policy, see `Policy`."""
        begin: Any = getattr(self.inner, "begin_rollout", None)
        bare = begin is None or self.frames is None
        return begin if bare else lambda carry: FramesCarry(carry.frames, begin(carry.inner))

    @torch.no_grad()
    def act(self, observation: Observation, carry: Any, *, deterministic: bool, generator: Generator) -> Act[Any, Any]:
        features, memory = observation.features, None
        if self.frames is not None:
            features, memory = self.frames.push(carry.frames, features, observation.is_first)
        if self.normalizer is not None:
            features = self.normalizer.normalized(features)
        inner = carry if self.frames is None else carry.inner
        seen = replace(observation, features=features)
        act = self.inner.act(seen, inner, deterministic=deterministic, generator=generator)
        return act if self.frames is None else replace(act, carry=FramesCarry(memory, act.carry))

    def estimates(self, steps: StepData[Any]) -> Any:
        """As `FillsExtras`; with stacked frames extras stay as they are: steps hold single frames."""
        if self.frames is not None or not isinstance(self.inner, FillsExtras):
            return steps.extras
        seen = steps.observation
        if self.normalizer is not None:
            lead = seen.is_first.shape
            flat = map_tensors(lambda leaf: leaf.flatten(0, 1), seen.features)
            normal = map_tensors(lambda leaf: leaf.unflatten(0, lead), self.normalizer.normalized(flat))
            seen = replace(seen, features=normal)
        return self.inner.estimates(replace(steps, observation=seen))

    get_distribution = user_questions.get_distribution
    predict_values, evaluate_actions = user_questions.predict_values, user_questions.evaluate_actions

    def state_dict(self) -> dict[str, Any]:
        state = dict(self.inner.state_dict())
        return state if self.normalizer is None else {**state, "normalizer": self.normalizer.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        rest = dict(state)
        if self.normalizer is not None:
            self.normalizer.load_state_dict(rest.pop("normalizer"))
        self.inner.load_state_dict(rest)
