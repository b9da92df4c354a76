"""A wrapper of a vector environment that moves its tensors to another device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

from rlsdk.environments.states import read_state
from rlsdk.environments.vector.connected import has_members
from rlsdk.interfaces import HasDevice, VectorEnv
from rlsdk.records import EnvStep, Observation
from rlsdk.runtime.device import is_same
from rlsdk.spaces import Space
from rlsdk.tree import map_tensors

T = TypeVar("T")


def device_of(env: object) -> str:
    """The device of the tensors of a vector environment; `cpu` for anything else."""
    return str(env.device) if has_members(env) and isinstance(env, HasDevice) else "cpu"


def on_device(env: VectorEnv, device: str) -> VectorEnv:
    """The environment with its tensors on `device`; unchanged if they are there anyway."""
    own = device_of(env)
    return env if is_same(own, device) else OnDevice(env, own, device)


class OnDevice:
    """Wraps a vector environment on the device `own`: moves the tensors of its records to `device`, and actions back."""

    def __init__(self, env: VectorEnv, own: str, device: str) -> None:
        self.env, self.own, self.device = env, own, device

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    @property
    def observation_space(self) -> Space:
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        return self.env.action_space

    def _move(self, value: T) -> T:
        return map_tensors(lambda leaf: leaf.to(self.device), value)

    def reset(self, seed: int | None = None) -> Observation:
        return self._move(self.env.reset(seed))

    def step(self, action: Any) -> EnvStep:
        step = self.env.step(map_tensors(lambda leaf: leaf.to(self.own), action))
        return replace(
            step,
            observation=self._move(step.observation),
            reward=self._move(step.reward),
            terminated=self._move(step.terminated),
            truncated=self._move(step.truncated),
            valid=self._move(step.valid),
            final_observation=self._move(step.final_observation),
            info=self._move(step.info),
        )

    def get_state(self) -> object:
        """The state of the environments. Raises OpaqueValue if it cannot be read."""
        return read_state(self.env)

    def set_state(self, state: object) -> None:
        """Restore a state from `get_state`."""
        cast("Any", self.env).set_state(state)

    def close(self) -> None:
        self.env.close()
