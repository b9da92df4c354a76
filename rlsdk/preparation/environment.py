"""The training environment as the loop sees it: frames stacked, statistics collected, observations normalised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.space_checks import require_inside
from rlsdk.environments.states import read_state
from rlsdk.interfaces import VectorEnv
from rlsdk.math.stored import stored_like
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
        final, counted = step.final_observation, None
        if final is not None:
            ended = step.terminated | step.truncated
            # an ended row whose next episode has not begun shows its last observation, in which nothing will be done
            counted = step.observation.is_first | ~ended
            if self.frames is not None:
                final = replace(final, features=self._stacked_final(self.frames, final, ended))
        observation = self._seen(step.observation, counted)
        if final is not None and self.normalizer is not None and self.normalize:  # with the statistics after this step
            final = replace(final, features=self.normalizer.normalized(final.features))
        return EnvStep(
            observation, step.reward, step.terminated, step.truncated, step.valid, final, step.episodes, step.infos
        )

    def _seen(self, observation: Observation, counted: Tensor | None = None) -> Observation:
        """The observation as the algorithm sees it; `counted` bool [B]: rows that enter the statistics, None = all."""
        features = observation.features
        if self.frames is not None:
            features, self.frames.memory = self.frames.push(self.frames.memory, features, observation.is_first)
        if self.normalizer is not None and self.normalize and (counted is None or bool(counted.all())):
            features = self.normalizer.seen(features)
        elif self.normalizer is not None:
            self.normalizer.observe(features, counted)
            features = self.normalizer.normalized(features) if self.normalize else features
        return Observation(features, observation.is_first, observation.action_mask)

    @staticmethod
    def _stacked_final(frames: FrameStacker, final: Observation, ended: Tensor) -> Any:
        """The last observations of the rows that `ended` bool [B], stacked on what those rows remember."""
        memory = map_tensors(lambda rows: rows[ended], frames.memory)
        return frames.push(memory, final.features, final.is_first)[0]

    def get_state(self) -> dict[str, Any]:
        """Where the environments stand, and the frames seen last; raises as theirs."""
        frames = {} if self.frames is None else tree.number(self.frames.memory)
        return {"env": read_state(self.env), "frames": frames}

    def set_state(self, state: Any) -> None:
        """Put back what `get_state` gave; raises as the environments'."""
        cast("Any", self.env).set_state(state["env"])
        if self.frames is not None:
            fresh = self.frames.initial(self.num_envs, self.device)
            memory = stored_like(fresh, state["frames"])
            require_inside(self.frames.single, memory, "the file's frames")
            self.frames.memory = memory

    def close(self) -> None:
        self.env.close()
