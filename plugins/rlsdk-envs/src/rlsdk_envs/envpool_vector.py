"""Environments of envpool as a gymnasium vector environment. `rlsdk-envs[envpool]` installs envpool."""

from __future__ import annotations

import secrets
from importlib.util import find_spec
from typing import Any, Protocol

import gymnasium
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rlsdk.errors import EnvironmentFault, SettingsError, UsageError, message_of, one_line
from rlsdk.runtime import pip_install


def knows(name: str) -> bool:
    """Whether envpool is installed and has an environment of this name."""
    if find_spec("envpool") is None:
        return False
    import envpool

    return name in envpool.list_all_envs()


class Pool(Protocol):
    """The result of `envpool.make`."""

    observation_space: gymnasium.Space[object]
    action_space: gymnasium.Space[object]

    def reset(self) -> tuple[object, dict[str, object]]: ...

    def step(self, actions: object) -> tuple[object, object, object, object, dict[str, object]]: ...

    def close(self) -> None: ...


OURS = {
    "num_envs": "n_envs",
    "seed": "seed of make_vec_env, or of the agent",
    "env_type": "nothing: it is gymnasium",
    "batch_size": "nothing: all environments are stepped together",
}
"""Arguments of `envpool.make` that users cannot set, and their replacements."""


class EnvpoolVector(gymnasium.vector.VectorEnv[object, object, object]):
    """B environments that envpool steps in threads. A reset with a seed makes a new pool, because envpool takes no seed later.

    Episodes end and begin as with gymnasium's next-step autoreset. A step that ends an episode gives its last observation and
    its flags. The next step ignores the action, and gives the first observation of the next episode and reward 0.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  # gymnasium's own declaration

    def __init__(self, name: str, num_envs: int, **kwargs: object) -> None:
        """Raises SettingsError for arguments in `OURS`, and EnvironmentFault when envpool cannot make the environment."""
        for argument in sorted(OURS.keys() & kwargs):
            raise SettingsError(f"env_kwargs has {argument!r} for envpool's {name!r}; use {OURS[argument]}")
        self.name, self.num_envs, self.kwargs = name, num_envs, kwargs
        self.pool = self._make(secrets.randbelow(2**31))  # without a seed, envpool would always use the seed 42
        self.single_observation_space, self.single_action_space = self.pool.observation_space, self.pool.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _make(self, seed: int) -> Pool:
        import envpool

        arguments = {**self.kwargs, "env_type": "gymnasium", "num_envs": self.num_envs, "seed": seed}
        try:
            made: Pool = envpool.make(self.name, **arguments)
        except Exception as error:  # envpool raises many types of errors
            raise EnvironmentFault(f"envpool cannot make {self.name!r}: {one_line(message_of(error), 300)}") from None
        return made

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[object, dict[str, object]]:
        self._require_open()
        if seed is not None:
            self.pool.close()
            self.pool = self._make(seed)
        return self.pool.reset()

    def step(self, actions: object) -> tuple[object, object, object, object, dict[str, object]]:
        self._require_open()
        return self.pool.step(actions)

    def _require_open(self) -> None:
        if self.closed:
            raise UsageError(f"the environments of {self.name!r} are closed; make new ones")

    def close_extras(self, **kwargs: object) -> None:
        """End the threads of envpool. `close` calls this once."""
        self.pool.close()


def make_envpool_vec_env(name: str, n_envs: int, **kwargs: object) -> EnvpoolVector:
    """A vector environment of envpool, which `make_vec_env(vectorization="native")` uses where gymnasium has none.

    Args:
        name: name of the environment in envpool, such as `Pong-v5`.
        n_envs: number of environments.
        kwargs: arguments of `envpool.make`.

    Raises:
        EnvironmentFault: envpool has no such environment, or it is not installed. SettingsError: an argument is set by rlsdk.
    """
    if knows(name):
        return EnvpoolVector(name, n_envs, **kwargs)
    hint = (
        f", or {pip_install('rlsdk-envs[envpool]')} for the environments envpool has"
        if find_spec("envpool") is None
        else ""
    )
    raise EnvironmentFault(
        f"{name!r} has no vector version in gymnasium{'' if hint else ' or envpool'}; use vectorization='sync'{hint}"
    )
