"""What the agents do that do not learn: random actions, a function, or a stored agent."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from numpy.typing import NDArray

import rlsdk
from rlsdk.errors import EnvironmentFault, SettingsError, shown
from rlsdk_pettingzoo.tasks import called, name_of_source, role_of

Mask = NDArray[np.bool_] | None
RANDOM = "random"


@runtime_checkable
class Acting(Protocol):
    """An agent of rlsdk, as far as opponents need it."""

    def session(self, n: int = 1, *, deterministic: bool = True, seed: int | None = None) -> Any: ...


class Player:
    """Acts for one agent of a task. `begin` starts an episode, `act` chooses an action."""

    def __init__(self, policy: object, action_space: gymnasium.Space[Any], *, deterministic: bool = False) -> None:
        """See `players_of`."""
        self.policy, self.space, self.deterministic = policy, action_space, deterministic
        self._random = np.random.default_rng(0)
        self._session: Any = None

    def fresh(self) -> Player:
        """A new player with the same policy."""
        return Player(self.policy, self.space, deterministic=self.deterministic)

    def begin(self, seed: int) -> None:
        """Begin an episode. All random choices of the episode follow from the seed."""
        self._random = np.random.default_rng(seed)
        self.space.seed(int(self._random.integers(2**31)))
        if isinstance(self.policy, Acting):
            self._session = self.policy.session(1, deterministic=self.deterministic, seed=seed)

    def act(self, observation: object, mask: Mask) -> object:
        """An action in the agent's space. `observation` is one of the task, without the mask; `mask` is bool [A] or None.

        Raises:
            EnvironmentFault: the policy raises an error, or chooses something that is not in the space.
        """
        if self._session is not None:
            return self._inside(self._session.act(observation, mask if mask is None else mask[None]))
        if callable(self.policy):
            own, arguments = self.policy, (observation, mask, self._random)
            return self._inside(called(lambda: own(*arguments), f"the policy {name_of_source(own)!r}", "its call"))
        if mask is not None and isinstance(self.space, gymnasium.spaces.Discrete):
            return int(self.space.start) + int(self._random.choice(np.flatnonzero(mask)))
        if mask is not None and isinstance(self.space, gymnasium.spaces.MultiDiscrete):
            parts = np.split(mask, np.cumsum(self.space.nvec)[:-1])
            chosen = np.array([self._random.choice(np.flatnonzero(part)) for part in parts])
            return self.space.start + chosen.reshape(self.space.shape)
        return self.space.sample()

    def _inside(self, action: object) -> object:
        """An action that a policy chose. Raises EnvironmentFault if it is not in the space: tasks rarely check it."""
        # arrays of numbers of another dtype are accepted, as tasks accept them
        is_box = isinstance(self.space, gymnasium.spaces.Box)
        is_array = is_box and isinstance(action, np.ndarray) and action.dtype.kind in "biuf"
        if not self.space.contains(np.asarray(action, self.space.dtype) if is_array else action):
            who = self.policy if self._session is not None else repr(name_of_source(self.policy))
            raise EnvironmentFault(
                f"the policy {who} of another agent chose {shown(action, 60)}, which is not in its space {self.space}"
            )
        return action


def players_of(
    policies: object, spaces: Mapping[Hashable, gymnasium.Space[Any]], *, deterministic: bool = False
) -> dict[Hashable, Player]:
    """The player of each agent.

    Args:
        policies: `random`; an agent of rlsdk, or the path of its file; a function (observation, mask, generator) -> action; or
            a table of these by the name of an agent or a role.
        spaces: agent -> action space.
        deterministic: whether agents of rlsdk play the mode of their policy.

    Raises:
        SettingsError: a policy is none of these, or an agent has none. ArtifactError: a file holds something else.
    """
    table = policies if isinstance(policies, Mapping) else dict.fromkeys(map(str, spaces), policies)
    loaded = {name: _loaded(policy) for name, policy in table.items()}
    found: dict[Hashable, Player] = {}
    for agent, space in spaces.items():
        policy = loaded.get(str(agent), loaded.get(role_of(agent)))
        if policy is None:
            raise SettingsError(
                f"no policy for agent {agent!r}; give one for its name, or for its role {role_of(agent)!r}"
            )
        found[agent] = Player(policy, space, deterministic=deterministic)
    return found


def _loaded(policy: object) -> Acting | Callable[..., object] | str:
    if policy == RANDOM or isinstance(policy, Acting) or callable(policy):
        return policy
    if isinstance(policy, str | Path):
        return rlsdk.load(policy)
    raise SettingsError(
        f"the policy of another agent is {shown(policy)}; accepted: 'random', an agent, the path of its file, or a function"
        " (observation, mask, generator) -> action"
    )
