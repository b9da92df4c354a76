"""A wrapper of a vector environment that moves its tensors to an accelerator."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, TypeVar, cast

from rlsdk.environments.states import read_state
from rlsdk.interfaces import VectorEnv
from rlsdk.records import EnvStep, Observation
from rlsdk.spaces import Space
from rlsdk.tree import Packing, map_tensors, signature

T = TypeVar("T")
TENSORS = ("observation", "reward", "terminated", "truncated", "valid", "final_observation", "info")
"""The fields of `EnvStep` that hold tensors on the device."""


def on_device(env: VectorEnv, device: str) -> VectorEnv:
    """The environment with its tensors on `device`; unchanged if that is the CPU, where they are anyway."""
    return env if device == "cpu" else OnDevice(env, device)


class OnDevice:
    """Wraps a vector environment: moves the tensors of its records to `device`, and actions to the CPU."""

    def __init__(self, env: VectorEnv, device: str) -> None:
        self.env, self.device = env, device
        self._packings: dict[Hashable, Packing] = {}

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
        """Copy a tree to the device, all its tensors together."""
        key = signature(value)
        packing = self._packings.get(key) or self._packings.setdefault(key, Packing(value))
        moved: T = packing.unpack(packing.pack(value).to(self.device))
        return moved

    def reset(self, seed: int | None = None) -> Observation:
        return self._move(self.env.reset(seed))

    def step(self, action: Any) -> EnvStep:
        step = self.env.step(map_tensors(lambda leaf: leaf.cpu(), action))
        fields = {name: getattr(step, name) for name in TENSORS}
        return replace(step, **self._move(fields))

    def get_state(self) -> object:
        """The state of the environments. Raises OpaqueValue if it cannot be read."""
        return read_state(self.env)

    def set_state(self, state: object) -> None:
        """Restore a state from `get_state`."""
        cast("Any", self.env).set_state(state)

    def close(self) -> None:
        self.env.close()
