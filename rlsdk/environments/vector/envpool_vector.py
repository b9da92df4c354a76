"""envpool's environments (extra `envpool`) as a gymnasium vector environment."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Protocol

import gymnasium
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space


def knows(name: str) -> bool:
    """Whether envpool is installed and has the environment."""
    if find_spec("envpool") is None:
        return False
    import envpool

    return name in envpool.list_all_envs()


class Pool(Protocol):
    """What `envpool.make` returns."""

    observation_space: gymnasium.Space[object]
    action_space: gymnasium.Space[object]

    def reset(self) -> tuple[object, dict[str, object]]: ...

    def step(self, actions: object) -> tuple[object, object, object, object, dict[str, object]]: ...


class EnvpoolVector(gymnasium.vector.VectorEnv[object, object, object]):
    """B environments stepped by envpool's threads; a reset with a seed makes a new pool, as envpool seeds only then."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  # gymnasium's own declaration

    def __init__(self, name: str, num_envs: int, **kwargs: object) -> None:
        self.name, self.num_envs, self.kwargs = name, num_envs, kwargs
        self.pool = self._make()
        self.single_observation_space, self.single_action_space = self.pool.observation_space, self.pool.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _make(self, **seed: int) -> Pool:
        import envpool

        arguments = {**self.kwargs, **seed}
        made: Pool = envpool.make(self.name, env_type="gymnasium", num_envs=self.num_envs, **arguments)
        return made

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[object, dict[str, object]]:
        if seed is not None:
            self.pool = self._make(seed=seed)
        return self.pool.reset()

    def step(self, actions: object) -> tuple[object, object, object, object, dict[str, object]]:
        return self.pool.step(actions)
