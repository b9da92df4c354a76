"""One row of a JAX environment as a gymnasium environment, for evaluation, recording and other programs."""

from __future__ import annotations

import warnings
import weakref
from copy import deepcopy
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np

from rlsdk.errors import SettingsError, UsageError
from rlsdk_jax.tasks import UNLIMITED, Array, Task, Tree, called, imported, restored, stored, task_of


class FunctionalEnv(gymnasium.Env[Any, Any]):
    """One row of a `Task`. Its random numbers differ from those of `JaxVectorEnv`, its episodes follow the same functions."""

    in_one_process = True  # JAX does not survive a fork
    metadata = {"render_modes": []}  # noqa: RUF012  # gymnasium's own declaration

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        """Raises SettingsError for a render mode, because these environments draw no pictures."""
        if render_mode is not None:
            raise SettingsError(f"environment {task.name!r} draws no pictures; leave render_mode = {render_mode!r} out")
        self.task, self._jax = task, imported("jax")
        # copies, because a space has a random generator
        self.observation_space, self.action_space = deepcopy((task.observation_space, task.action_space))
        self._begun, self._advanced = _programs(task)
        self._state: Tree | None = None
        self._key: Array | None = None
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        random = self._jax.random
        key = random.PRNGKey(int(self.np_random.integers(2**31)))
        self._key, own = random.split(key)
        seen, self._state = self._call(lambda: self._begun(own))
        self._steps = 0
        return self._observed(seen), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise UsageError(f"environment {self.task.name!r} was never reset; call reset() before step()")
        state = self._state
        self._key, own = self._jax.random.split(self._key)
        moved = self._call(lambda: self._advanced(own, state, _accepted(self.action_space, action)))
        self._state, self._steps = moved.state, self._steps + 1
        truncated = bool(moved.truncated) or self._steps >= (self.task.limit or UNLIMITED)
        info = {name: float(value) for name, value in moved.info.items() if getattr(value, "shape", None) == ()}
        return self._observed(moved.observation), float(moved.reward), bool(moved.terminated), truncated, info

    def _call(self, call: Any) -> Any:
        return called(call, f"environment {self.task.name!r}")

    def _observed(self, seen: Tree) -> Any:
        return _as_arrays(self.observation_space, seen)

    def get_state(self) -> dict[str, Any]:
        """The state, the random key and the steps of the running episode, as numpy arrays."""
        leaves = self._jax.tree.leaves((self._key, self._state))
        return {"leaves": [stored(self._jax, leaf) for leaf in leaves], "steps": self._steps}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state from `get_state`. Raises ValueError for that of another environment."""
        jax = self._jax
        self.reset(seed=0)
        mine, structure = jax.tree.flatten((self._key, self._state))
        given = [np.asarray(leaf) for leaf in state["leaves"]]
        kinds = [(leaf.shape, leaf.dtype) for leaf in (stored(jax, leaf) for leaf in mine)]
        if [(leaf.shape, leaf.dtype) for leaf in given] != kinds or not 0 <= int(state["steps"]) <= UNLIMITED:
            raise ValueError("the stored state has other arrays than this environment")
        leaves = [restored(jax, old, new) for old, new in zip(mine, given, strict=True)]
        self._key, self._state = jax.tree.unflatten(structure, leaves)
        self._steps = int(state["steps"])


def make_single(
    task: str, *, max_episode_steps: int | None = None, render_mode: str | None = None, **settings: Any
) -> FunctionalEnv:
    """The environment of an id such as `gymnax/CartPole-v1`. Arguments and errors are those of `make_jax_vec_env`."""
    try:
        found = _task(task, max_episode_steps, **settings)
    except TypeError:  # a list, which has no hash
        found = task_of(task, settings, max_episode_steps)
    made = FunctionalEnv(found, render_mode)
    _ALIVE.add(made)
    if len(_ALIVE) == MANY:
        warnings.warn(
            "several environments in JAX are stepped one after another; vectorization='jax' (--vectorization jax) makes the"
            " step of all in one compiled function",
            stacklevel=2,
        )
    return made


MANY = 4
"""So many environments are more than those of a training with one copy and of its evaluations."""
_ALIVE: weakref.WeakSet[FunctionalEnv] = weakref.WeakSet()


@lru_cache(16)
def _task(identity: str, limit: int | None, **settings: Any) -> Task:
    """The task of an id. It is made once, so that its functions are compiled once."""
    return task_of(identity, settings, limit)


@lru_cache(16)
def _programs(task: Task) -> tuple[Any, Any]:
    """The compiled functions of a task: `begin` and `advance`."""
    jax = imported("jax")
    return jax.jit(task.begin), jax.jit(task.advance)


def _accepted(space: gymnasium.Space[Any], action: Any) -> Any:
    """An action as the task takes it; numbers of a Box are clipped."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _accepted(child, action[key]) for key, child in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_accepted(child, part) for child, part in zip(space.spaces, action, strict=True))
    if isinstance(space, gymnasium.spaces.Box):
        return np.clip(np.asarray(action, space.dtype), space.low, space.high)
    return np.asarray(action, np.int32)


def _as_arrays(space: gymnasium.Space[Any], seen: Tree) -> Any:
    """An observation as numpy arrays in the dtypes of the space."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _as_arrays(child, seen[key]) for key, child in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_as_arrays(child, part) for child, part in zip(space.spaces, seen, strict=True))
    return np.asarray(seen, space.dtype)
