"""The training environment as the loop sees it: frames stacked, statistics collected, observations normalised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from rlsdk import tree
from rlsdk.environments.states import state_told_by
from rlsdk.interfaces import VectorEnv
from rlsdk.preparation.frames import FrameStacker
from rlsdk.preparation.normalizer import Normalizer
from rlsdk.records import EnvStep, Observation
from rlsdk.tree import map_tensors


class PreparedEnv:
    """Wraps the environments an agent trains on; rewards are prepared by what learns from them.

    With `normalize` observations come out normalised; without, statistics are collected only, for memories that keep what
    was seen and normalise what they give.
    """

    def __init__(
        self,
        env: VectorEnv,
        frames: FrameStacker | None,
        normalizer: Normalizer | None,
        *,
        normalize: bool,
        device: str,
    ) -> None:
        self.env, self.frames, self.normalizer, self.normalize = env, frames, normalizer, normalize
        self.device = device

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    def reset(self, seed: int | None = None) -> Observation:
        observation = self.env.reset(seed)
        if self.frames is not None:
            self.frames.memory = self.frames.initial(self.num_envs, self.device)
        if self.normalizer is not None:
            self.normalizer.rewards.returns.fill(0.0)
        return self._seen(observation)

    def step(self, action: Tensor) -> EnvStep:
        step = self.env.step(action)
        final = step.final_observation
        if final is not None:
            final = self._final(final, step.terminated | step.truncated)
        observation = self._seen(step.observation)
        return EnvStep(
            observation, step.reward, step.terminated, step.truncated, step.valid, final, step.episodes, step.infos
        )

    def _seen(self, observation: Observation) -> Observation:
        features = observation.features
        if self.frames is not None:
            features, self.frames.memory = self.frames.push(self.frames.memory, features, observation.is_first)
        if self.normalizer is not None and self.normalize:
            features = self.normalizer.seen(features)
        elif self.normalizer is not None:
            self.normalizer.observe(features)
        return Observation(features, observation.is_first, observation.action_mask)

    def _final(self, final: Observation, ended: Tensor) -> Observation:
        """The last observations of the rows that ended, stacked on what those rows remember."""
        features = final.features
        if self.frames is not None:
            memory = map_tensors(lambda rows: rows[ended], self.frames.memory)
            features, _ = self.frames.push(memory, features, final.is_first)
        if self.normalizer is not None and self.normalize:
            features = self.normalizer.normalized(features)
        return replace(final, features=features)

    def get_state(self) -> dict[str, Any]:
        """Where the environments stand, and the frames seen last; raises as theirs."""
        frames = {} if self.frames is None else tree.number(self.frames.memory)
        return {"env": state_told_by(self.env), "frames": frames}

    def set_state(self, state: Any) -> None:
        """Put back what `get_state` told; raises as the environments'."""
        cast("Any", self.env).set_state(state["env"])
        if self.frames is not None:
            stored = iter(tree.numbered(state["frames"]))
            fresh = self.frames.initial(self.num_envs, self.device)
            self.frames.memory = map_tensors(lambda leaf: next(stored).to(leaf), fresh)

    def close(self) -> None:
        self.env.close()
