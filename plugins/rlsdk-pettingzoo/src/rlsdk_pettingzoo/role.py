"""One agent of a task as a gymnasium environment: the other agents act by policies of their own, as in games with turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlsdk.environments import OpaqueValue, to_gymnasium, to_space
from rlsdk.errors import (
    ArtifactError,
    EnvironmentFault,
    RlsdkError,
    SettingsError,
    UsageError,
    shown,
)
from rlsdk.spaces import choices_of
from rlsdk_pettingzoo.players import RANDOM, players_of
from rlsdk_pettingzoo.rows import digest_of, observation_of
from rlsdk_pettingzoo.tasks import (
    Task,
    appeared_in_turns,
    called,
    checked_mask,
    choices_allowed,
    make_task,
    name_of_source,
    require_choice,
    role_of,
    seen_and_mask,
    spaces_of_agents,
)

ANY = "any"
MOST_MOVES = 100_000
"""Moves of the other agents in a row after which a task counts as endless."""
MOST_GAMES = 1000
"""Games without a turn of the agent in a row, after which it counts as one that never acts."""


class OneRole(gymnasium.Env[object, object]):
    """The steps of one agent of a task. Between two of them the other agents act, and its rewards are summed.

    The step that ends the agent's episode gives its last observation. If the other agents continue, their game is left.
    """

    metadata = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012  # gymnasium's own declaration

    def __init__(
        self,
        make: Callable[[], Task],
        name: str,
        *,
        role: str = ANY,
        opponents: object = RANDOM,
        deterministic: bool = False,
    ) -> None:
        """`make`: makes a new task in the form `aec`. The others: see `make_role_env`."""
        self._make, self._role, task = make, role, make()
        agents = list(task.possible_agents)
        self.candidates = agents if role == ANY else [each for each in agents if role in (str(each), role_of(each))]
        if not self.candidates:
            known = ", ".join(dict.fromkeys((ANY, *map(str, agents), *map(role_of, agents))))
            raise SettingsError(f"role = {shown(role)} of task {name!r}; accepted: {known}")
        self.task, self.name, self.render_mode = task, name, getattr(task, "render_mode", None)
        seen, acted = spaces_of_agents(task, self.candidates, name)
        self.observation_space, self.action_space = to_gymnasium(seen), to_gymnasium(acted)
        self._spaces, self._deterministic = (seen, acted), deterministic
        self.set_opponents(opponents)
        self._players = self.next_players
        self.agent = self.candidates[0]
        """The agent whose steps these are; with `role="any"` a random one in each episode."""
        self._mask: NDArray[np.bool_] | None = None
        self._episode, self._begun = 0, False
        self._actions: list[object] = []

    def set_opponents(self, opponents: object) -> None:
        """Replace what the other agents do, from the next reset on; see `rlsdk_pettingzoo.players.players_of`."""
        others = [agent for agent in self.task.possible_agents if [agent] != self.candidates]
        spaces = {agent: self.task.action_space(agent) for agent in others}
        self.next_players = players_of(opponents, spaces, deterministic=self._deterministic)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self._episode = int(self.np_random.integers(2**31))
        return self._begin(options)

    def _begin(self, options: dict[str, Any] | None = None) -> tuple[object, dict[str, object]]:
        """Begin the episode whose seed is `_episode`. Games that end before the agent's first turn are left out."""
        random, seed, self._actions = np.random.default_rng(self._episode), self._episode, []
        self._players = self.next_players  # those of a running game stay until its end
        for _ in range(MOST_GAMES):
            self.agent = self.candidates[int(random.integers(len(self.candidates)))]
            for player in self._players.values():
                player.begin(int(random.integers(2**31)))
            self._ask(lambda seed=seed: self.task.reset(seed=seed, options=options), "reset")
            self._begun = True
            self._advance()
            observation, _, terminated, truncated, info = self._seen()
            if not terminated and not truncated:
                return observation, info
            seed = int(random.integers(2**31))
        raise EnvironmentFault(
            f"task {self.name!r}: {MOST_GAMES:,} games ended before the first turn of {self.agent!r}; give another role,"
            " or opponents that play longer"
        )

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        if not self._begun or not self.task.agents:
            raise UsageError(f"the episode of task {self.name!r} has ended, or never began; call reset()")
        self._actions.append(np.array(action) if isinstance(action, np.ndarray | np.generic) else action)
        self._ask(lambda: self.task.step(action), f"step({shown(action, 60)})")
        self._advance()
        return self._seen()

    def _advance(self) -> None:
        """Let the other agents act until it is the agent's turn, or its episode has ended."""
        for _ in range(MOST_MOVES):
            if not self.task.agents or self.task.agent_selection == self.agent:
                return
            other = self.task.agent_selection
            given, _, terminated, truncated, info = self._ask(self.task.last, "last()")
            if terminated or truncated:
                self._ask(lambda: self.task.step(None), "step(None)")
                continue
            seen, mask = seen_and_mask(given, info)
            chosen = self._players[other].act(seen, self._mask_of(other, mask))
            self._ask(lambda chosen=chosen: self.task.step(chosen), f"step({shown(chosen, 60)})")
        raise EnvironmentFault(f"task {self.name!r}: it was not the turn of {self.agent!r} in {MOST_MOVES:,} moves")

    def _mask_of(self, agent: Any, mask: object) -> NDArray[np.bool_] | None:
        """The action mask of another agent, bool [A]. Raises EnvironmentFault if it allows no action."""
        if mask is None:
            return None
        space, where = to_space(self.task.action_space(agent), "action"), f"task {self.name!r}, {agent!r}"
        if not choices_of(space):
            return np.asarray(mask, np.bool_)  # of an agent without choices, whose policy may read it
        checked = checked_mask(mask, space, where)
        require_choice(checked, space, where)
        return checked

    def _seen(self) -> tuple[object, float, bool, bool, dict[str, object]]:
        if self.agent not in self.task.agents:
            raise EnvironmentFault(f"task {self.name!r}: agent {self.agent!r} left without a last observation")
        given, reward, terminated, truncated, info = self._ask(self.task.last, "last()")
        seen, mask = seen_and_mask(given, info)
        self._mask = (
            None if mask is None else checked_mask(mask, self._spaces[1], f"task {self.name!r}, {self.agent!r}")
        )
        if self._mask is not None and not choices_allowed(self._mask, self._spaces[1]) and (terminated or truncated):
            self._mask = np.ones_like(self._mask)  # no action follows the end
        return seen, float(reward), bool(terminated), bool(truncated), dict(info)

    def _ask(self, call: Any, what: str) -> Any:
        try:
            return called(call, f"task {self.name!r}", what)
        except EnvironmentFault as error:
            agent = appeared_in_turns(self.task, error.__cause__)
            if agent is None:
                raise
            raise EnvironmentFault(
                f"task {self.name!r}: agent {agent!r} appeared during an episode, which turns that PettingZoo makes of a"
                " parallel task cannot have; train a row for each agent (the vectorization 'pettingzoo'), or write the task"
                " as an AECEnv"
            ) from error.__cause__

    def render(self) -> Any:
        return self.task.render()

    def close(self) -> None:
        self.task.close()

    # --- state -------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, object]:
        """The seed of the running episode, the actions so far, and a digest of what the agent sees now.

        Raises:
            OpaqueValue: a new copy of the task does something else with this seed and these actions.
        """
        actions = [np.asarray(action) for action in self._actions]
        state = {"episode": self._episode, "actions": actions, "seen": self._digest()}
        other = type(self)(self._make, self.name, role=self._role, opponents=RANDOM)
        other.next_players = {name: own.fresh() for name, own in self._players.items()}
        try:
            other.set_state(state)
        except RlsdkError:
            raise OpaqueValue(
                f"the state of task {self.name!r}, which does not repeat its episodes from a seed"
            ) from None
        finally:
            other.close()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Play the episode of a state from `get_state` again. Raises ArtifactError if the task does something else."""
        self._episode = int(state["episode"])
        self._begin()
        for action in state["actions"]:
            if self.task.agents:
                self.step(action.item() if action.ndim == 0 else action)
        if self._digest() != state["seen"]:
            raise ArtifactError(
                f"task {self.name!r} does not repeat the episode of the file: it, or the policy of another agent, has changed;"
                " begin new episodes with load(..., force_reset=True)"
            )

    def _digest(self) -> str:
        """A short text for what the agent sees now and its last reward."""
        if self.agent not in self.task.agents:
            return ""
        seen, *rest, _ = self._seen()
        return digest_of([(f"{self.agent} {rest}", observation_of(self._spaces[0], seen, self.name))])


class MaskedRole(OneRole):
    """`OneRole` of a task with action masks."""

    def action_masks(self) -> NDArray[np.bool_]:
        """The actions that the agent may choose now, bool [A]. Raises UsageError before the first reset."""
        if self._mask is None:
            raise UsageError(f"task {self.name!r} was never reset; call reset() before action_masks()")
        return self._mask


def make_role_env(
    task: object, *, role: str = ANY, opponents: object = RANDOM, deterministic: bool = False, **kwargs: object
) -> OneRole:
    """One agent of a PettingZoo task as a gymnasium environment. The ids `pettingzoo-role/NAME` call this function.

    Args:
        task: a name such as `connect_four_v3`, or a function that makes an `AECEnv` or a `ParallelEnv`.
        role: the name or the role of the agent that learns; `any`: another agent in each episode, if all have equal spaces.
        opponents: what the other agents do: `random`, an agent of rlsdk or the path of its file, a function (observation,
            mask, generator) -> action, or a table of these by agent or role.
        deterministic: whether opponents that are agents of rlsdk play the mode of their policy.
        kwargs: arguments of the task.

    Raises:
        EnvironmentFault: there is no such task, a package is missing, or agents have different spaces.
        SettingsError: `role` or `opponents` is wrong.
    """
    name = name_of_source(task)

    def make() -> Task:
        return make_task(task, kwargs, "aec")

    trial = make()
    first = trial.possible_agents[0]
    trial.reset(seed=0)
    has_masks = first in trial.agents and seen_and_mask(trial.observe(first), trial.infos.get(first, {}))[1] is not None
    kind = MaskedRole if has_masks and choices_of(spaces_of_agents(trial, [first], name)[1]) else OneRole
    trial.close()
    return kind(make, name, role=role, opponents=opponents, deterministic=deterministic)
