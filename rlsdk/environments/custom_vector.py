"""Any object with the members of `rlsdk.interfaces.VectorEnv` and spaces as a training environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from torch import Tensor

from rlsdk import spaces
from rlsdk.environments.seeds import Seeds
from rlsdk.environments.space_conversion import to_space
from rlsdk.environments.standing import count_reset, resets_of
from rlsdk.errors import EnvironmentFault, RlsdkError, UsageError, message_of
from rlsdk.records import EnvStep, Observation
from rlsdk.runtime.output import shown
from rlsdk.spaces import Space, dtype_of, map_leaves, shape_of

MEMBERS = ("num_envs", "observation_space", "action_space", "reset", "step", "close")
"""What such an object must have."""


def looks_like_one(env: Any) -> bool:
    """Whether an object has the members of a vector environment; those of stable-baselines3, which has others too, are none."""
    return all(hasattr(env, name) for name in MEMBERS) and not hasattr(env, "step_async")


class CustomVectorEnv:
    """Checks what the object gives, and has what else algorithms and agents ask for. Further members are the object's own:
    `get_state` and `set_state` for exact resuming, `has_masks`, `keep_infos`, `get_attr`, `set_attr`, `env_method`, `map`."""

    def __init__(self, env: Any) -> None:
        self.env, self.num_envs = env, int(env.num_envs)
        self.observation_space = _space(env.observation_space, "observation")
        self.action_space = _space(env.action_space, "action")
        own = getattr(env, "name", None)
        self.name: str = own if isinstance(own, str) else type(env).__name__
        self.seeds, self.recipe, self._moves = Seeds(), None, 0
        self.has_masks = bool(getattr(env, "has_masks", False))
        self.environments = [env]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, seed: int | None = None) -> Observation:
        if seed is None:
            seed = self.seeds.first_pending()
        count_reset(self.env)
        observation: Observation = self._ask(lambda: self.env.reset(seed), Observation, "reset")
        self.has_masks = observation.action_mask is not None
        self._check(observation, self.num_envs, "reset")
        return observation

    def step(self, action: Tensor) -> EnvStep:
        self._moves += 1
        step: EnvStep = self._ask(lambda: self.env.step(action), EnvStep, "step")
        flags = {"terminated": step.terminated, "truncated": step.truncated, "valid": step.valid}
        for field, value in {**flags, "reward": step.reward}.items():
            self._leaf(value, (self.num_envs,), torch.float32 if field == "reward" else torch.bool, f"step, {field}")
        self._check(step.observation, self.num_envs, "step")
        ended = int((step.terminated | step.truncated).sum())
        if bool(ended) != (step.final_observation is not None):
            raise EnvironmentFault(
                f"environment {self.name!r}, step: {ended} episodes ended, final_observation is"
                f" {'missing' if ended else 'given'}; give the last observations of the episodes that ended, and None otherwise"
            )
        if step.final_observation is not None:
            self._check(step.final_observation, ended, "step, final_observation")
        return step

    def _call(self, call: Callable[[], Any], what: str) -> Any:
        """The answer of the object; what goes wrong in it names the environment."""
        try:
            return call()
        except RlsdkError:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"environment {self.name!r} raised {type(error).__name__} in {what}: {message_of(error)}"
            ) from error

    def _ask(self, call: Callable[[], Any], kind: type[Any], what: str) -> Any:
        """The record that the object answers with."""
        given = self._call(call, what)
        if not isinstance(given, kind):
            raise EnvironmentFault(
                f"environment {self.name!r}: {what} gave {shown(given)}, not a rlsdk.records.{kind.__name__}"
            )
        return given

    def _check(self, observation: Observation, rows: int, what: str) -> None:
        """Raises EnvironmentFault when an observation has not the shapes and dtypes of its space."""
        self._leaf(observation.is_first, (rows,), torch.bool, f"{what}, is_first")

        def check(path: str, leaf: Space, value: Any) -> Any:
            return self._leaf(value, (rows, *shape_of(leaf)), getattr(torch, dtype_of(leaf)), f"{what}, {path}")

        try:
            map_leaves(self.observation_space, check, observation.features)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise EnvironmentFault(
                f"environment {self.name!r}, {what}: features {shown(observation.features)} are not nested as the space"
            ) from None

    def _leaf(self, value: Any, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> Any:
        if not isinstance(value, Tensor) or value.shape != shape or value.dtype != dtype:
            got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else shown(value)
            raise EnvironmentFault(f"environment {self.name!r}, {what}: got {got}, not a tensor {dtype} {shape}")
        return value

    def standing(self) -> Any:
        """What changes when the environment is moved; see `standing_of`."""
        return self._moves, resets_of(self.env)

    def map(self, work: Any, items: Any) -> list[Any]:
        """The object's own `map`, for population methods.

        Raises:
            UsageError: it has none.
        """
        own = getattr(self.env, "map", None)
        if own is None:
            raise UsageError(
                f"{self.name!r} is a vector by itself and plays no single episodes; population methods need"
                " make_vec_env(id, n, vectorization='sync' or 'async'), or a method `map`"
            )
        answers: list[Any] = own(work, items)
        return answers

    def close(self) -> None:
        self._call(self.env.close, "close")


def _space(space: Any, path: str) -> Space:
    if isinstance(space, gymnasium.Space):
        return to_space(space, path)
    if not isinstance(space, Space):
        kinds = ", ".join(kind.__name__ for kind in (spaces.Box, spaces.Discrete, spaces.Dict))
        raise EnvironmentFault(
            f"the {path} space is {shown(space)}; give a gymnasium space, or one of rlsdk.spaces: {kinds}, ..."
        )
    return space
