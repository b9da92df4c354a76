"""envpool's environments (extra `envpool`) as a gymnasium vector environment."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space


def knows(name: str) -> bool:
    """Whether envpool is installed and has the environment."""
    if find_spec("envpool") is None:
        return False
    import envpool

    return name in envpool.list_all_envs()


class EnvpoolVector(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """B environments stepped by envpool's threads; a reset with a seed makes a new pool, as envpool seeds only then."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  # gymnasium's own declaration

    def __init__(self, name: str, num_envs: int, **kwargs: Any) -> None:
        self.name, self.num_envs, self.kwargs = name, num_envs, kwargs
        self.pool = self._make()
        self.single_observation_space, self.single_action_space = self.pool.observation_space, self.pool.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _make(self, **seed: int) -> Any:
        import envpool

        return envpool.make(self.name, env_type="gymnasium", num_envs=self.num_envs, **{**self.kwargs, **seed})

    def reset(self, *, seed: Any = None, options: object = None) -> Any:
        if seed is not None:
            self.pool = self._make(seed=int(seed))
        return self.pool.reset()

    def step(self, actions: object) -> Any:
        return self.pool.step(actions)
