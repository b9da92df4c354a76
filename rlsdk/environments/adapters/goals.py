"""Rewards for replaced goals, computed by the environment, for replay buffers that replace goals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.attributes import Indices
from rlsdk.errors import EnvironmentFault, UsageError, shown


class GoalEnv(Protocol):
    """The members of an agent's environment that `GoalRules` needs."""

    name: str

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> Sequence[object]:
        """See `rlsdk.interfaces.HasSeparateEnvs`."""
        ...


class GoalRules:
    """Calls `compute_reward` and, if it exists, `compute_terminated` of the agent's current environment."""

    def __init__(self, environment: Callable[[], GoalEnv | None]) -> None:
        self._environment = environment

    def compute_reward(self, achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor | None]:
        """(reward float32 [M], terminated bool [M]) of M transitions with replaced goals.

        `terminated` is None if the environment has no method `compute_terminated`.

        Args:
            achieved: the goals that were achieved, [M, ..].
            goal: the goals that replace the original ones, [M, ..].

        Raises:
            UsageError: there is no environment.
            EnvironmentFault: `compute_reward` is missing, does not accept batches, or gives a number that is not finite.
        """
        env = self._environment()
        if env is None:
            raise UsageError("hindsight replay needs the environment for rewards; give the agent an environment")
        arguments: tuple[object, ...] = achieved.numpy(force=True), goal.numpy(force=True), [{} for _ in goal]
        reward = self._call(env, "compute_reward", arguments)
        numbers = reward.dtype.kind in "biuf"
        if reward.shape != (len(goal),) or not numbers or not np.isfinite(reward).all():
            given = f"shape {reward.shape}" if reward.shape != (len(goal),) else shown(reward, 100)
            raise EnvironmentFault(
                f"environment {env.name!r}: compute_reward must give one finite number per row for goals stacked on the"
                f" first axis; for {len(goal)} it gave {given}"
            )
        terminated = None
        if self._call(env, "has_wrapper_attr", ("compute_terminated",)):
            over = self._call(env, "compute_terminated", arguments)
            if over.shape != (len(goal),):  # the method does not accept batches
                over = np.array([self._call(env, "compute_terminated", row) for row in zip(*arguments, strict=True)])
            terminated = torch.from_numpy(over.astype(bool)).to(goal.device)
        return torch.as_tensor(reward, dtype=torch.float32), terminated

    def _call(self, env: GoalEnv, name: str, arguments: tuple[object, ...]) -> NDArray[np.generic]:
        return np.asarray(env.env_method(name, *arguments, indices=[0])[0])
