"""A wrapper of the training environments that stacks their last observations."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from torch import Tensor

from rlsdk import tree
from rlsdk.environments.states import read_state
from rlsdk.interfaces import CapturesState, State, VectorEnv
from rlsdk.interfaces.require_inside import require_inside
from rlsdk.preprocessing.frames import FrameStacker
from rlsdk.records import EnvStep, Features, Observation
from rlsdk.runtime.stored import stored_like
from rlsdk.spaces import Space
from rlsdk.tree import map_tensors


class FrameStackEnv:
    """The vector environment `env` with stacked observations, like those of `gymnasium.wrappers.FrameStackObservation`."""

    def __init__(self, env: VectorEnv, frames: FrameStacker, device: str) -> None:
        self.env, self.frames, self.device = env, frames, device

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    @property
    def observation_space(self) -> Space:
        return self.frames.space

    @property
    def action_space(self) -> Space:
        return self.env.action_space

    def reset(self, seed: int | None = None) -> Observation:
        observation = self.env.reset(seed)
        self.frames.memory = self.frames.initial(self.num_envs, self.device)
        return self._stacked(observation)

    def step(self, action: Features) -> EnvStep:
        step = self.env.step(action)
        final = step.final_observation
        if final is not None:
            ended = step.terminated | step.truncated
            memory = map_tensors(lambda rows: rows[ended], self.frames.memory)
            final = replace(final, features=self.frames.push(memory, final.features, final.is_first)[0])
        return replace(step, observation=self._stacked(step.observation), final_observation=final)

    def _stacked(self, observation: Observation) -> Observation:
        frames = self.frames
        features, frames.memory = frames.push(frames.memory, observation.features, observation.is_first)
        return Observation(features, observation.is_first, observation.action_mask)

    def get_state(self) -> State:
        """The state of the environments and the last frames. Raises OpaqueValue where an environment cannot be read."""
        return {"stacked": read_state(self.env), "frames": tree.number(self.frames.memory)}

    def set_state(self, state: State) -> None:
        """Restore a state from `get_state`. Raises ValueError when the frames do not fit, and as `set_state` of `env`."""
        cast("CapturesState", self.env).set_state(state["stacked"])
        fresh = self.frames.initial(self.num_envs, self.device)
        memory: Tensor = stored_like(fresh, state["frames"])
        require_inside(self.frames.single, memory, "the file's frames")
        self.frames.memory = memory

    def close(self) -> None:
        self.env.close()
