"""A vector environment with a row for each agent of a parallel environment: one policy acts for all agents.

An agent's episode begins when it appears and ends when it is terminated or truncated. Until the next one begins, its row is a
padding row: `valid` is False, its reward is 0, its observation is neutral, its action is ignored. No algorithm learns from such
rows, and none continues a return or a recurrent state across them. A truncated episode gives its last observation, from which
algorithms estimate the rest of the return; a terminated one has no rest.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlsdk.environments import OpaqueValue, require_copies
from rlsdk.errors import ArtifactError, EnvironmentFault, RlsdkError, SettingsError, UsageError, shown
from rlsdk.interfaces import State
from rlsdk.records import EnvStep, Features, Observation
from rlsdk.runtime import checked_seed, derive
from rlsdk.spaces import choices_of
from rlsdk_pettingzoo.copies import Copy, asked
from rlsdk_pettingzoo.players import RANDOM, Player, players_of
from rlsdk_pettingzoo.rows import Rows, actions_of
from rlsdk_pettingzoo.tasks import Task, chosen_agents, make_task, name_of_source, seen_and_mask, spaces_of_agents

Indices = int | Sequence[int] | None
"""One row, several, or all (None)."""


class AgentsVector:
    """Copies of a task, with a row for each agent that learns: those of copy 0 first."""

    checks_steps = True  # `Rows` checks what the tasks return

    def __init__(
        self,
        make: Callable[[], Task],
        count: int,
        *,
        name: str,
        agents: str | Sequence[str] | None = None,
        others: object = RANDOM,
    ) -> None:
        """See `make_agents_vec_env`."""
        self._make, self.name = make, name
        tasks = [make() for _ in range(count)]
        if len({id(task) for task in tasks}) < count:
            raise EnvironmentFault(
                f"task {name!r}: the function returned the same environment twice; return a new one each time"
            )
        learners = chosen_agents(tasks[0], agents, name)
        self.observation_space, self.action_space = spaces = spaces_of_agents(tasks[0], learners, name)
        self.has_masks = _has_masks(tasks[0], learners, name) and bool(choices_of(spaces[1]))
        self.copies = [
            Copy(task, learners, spaces, _others(task, learners, others), f"task {name!r}, copy {i}")
            for i, task in enumerate(tasks)
        ]
        self.agents_of_rows = list(map(str, learners)) * count
        """The name of the agent of each row."""
        self.num_envs = len(self.agents_of_rows)
        self._base: int | None = None
        self._keeps_infos, self._names = False, tuple[str, ...]()
        self._reset_infos: list[dict[str, object]] = []

    def reset(self, seed: int | None = None) -> Observation:
        """Begin an episode in every copy. Without a seed, the episodes continue the sequence of the last seed."""
        if seed is not None or self._base is None:
            self._base = secrets.randbelow(2**32) if seed is None else checked_seed(seed)
            for copy in self.copies:
                copy.episode = -1
        rows = self._rows()
        for i, copy in enumerate(self.copies):
            copy.begin(self._seed_of(i), rows, i * len(copy.learners))
        self._reset_infos = [dict(info) for info in rows.infos]
        return rows.observation()

    def step(self, action: Features) -> EnvStep:
        if self._base is None:
            raise UsageError(f"task {self.name!r} was never reset; call reset() before step()")
        rows, actions = self._rows(), actions_of(self.action_space, action, self.num_envs)
        for i, copy in enumerate(self.copies):
            first = i * len(copy.learners)
            copy.step(actions[first : first + len(copy.learners)], rows, first)
            if not copy.task.agents:
                copy.begin(self._seed_of(i), rows, first)
        return rows.step(self._entries(rows), with_infos=self._keeps_infos)

    def _rows(self) -> Rows:
        return Rows((self.observation_space, self.action_space), self.num_envs, has_masks=self.has_masks)

    def _seed_of(self, index: int) -> Callable[[int], int]:
        """A function of the number of an episode: the seed with which copy `index` begins it."""
        return lambda episode: derive(self._base or 0, f"episode {episode}", index) % 2**31

    def _entries(self, rows: Rows) -> dict[str, torch.Tensor]:
        """The declared entries of the infos, float32 [B] each; 0 in padding rows."""
        found = {name: np.zeros(self.num_envs, np.float32) for name in self._names}
        for name, values in found.items():
            for row in np.flatnonzero(rows.valid).tolist():
                value = rows.infos[row].get(name)
                if not isinstance(value, int | float | np.number) or not np.isfinite(value):
                    raise EnvironmentFault(
                        f"task {self.name!r}: info of agent {self.agents_of_rows[row]!r} needs {name!r}, a finite number,"
                        f" which the algorithm reads; it has {value!r}"
                    )
                values[row] = value
        return {name: torch.from_numpy(values) for name, values in found.items()}

    def keep_infos(self, keep: bool) -> None:
        """Set whether steps have `infos` from now on."""
        self._keeps_infos = keep

    def select_info(self, names: Sequence[str]) -> None:
        """Set the entries of the infos that steps have as tensors from now on."""
        self._names = tuple(names)

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each agent at the last reset of all copies; empty for agents that were not there."""
        return self._reset_infos or [{} for _ in range(self.num_envs)]

    def get_attr(self, name: str, indices: Indices = None) -> list[object]:
        """The attribute `name` of the task of each row. Raises UsageError if there is none."""
        return [_attribute(task, name, self.name) for task in self._tasks(indices)]

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        """Call a method of the task of each row, once per copy, and return the result for each row."""
        tasks, found = self._tasks(indices), dict[int, object]()
        for task in tasks:
            if id(task) not in found:
                found[id(task)] = _attribute(task, name, self.name)(*args, **kwargs)
        return [found[id(task)] for task in tasks]

    def _tasks(self, indices: Indices) -> list[Task]:
        rows = range(self.num_envs) if indices is None else [indices] if isinstance(indices, int) else indices
        if any(not 0 <= row < self.num_envs for row in rows):
            last = self.num_envs - 1
            raise SettingsError(f"indices = {shown(indices)} of task {self.name!r}; give numbers of rows, 0 to {last}")
        return [self.copies[row * len(self.copies) // self.num_envs].task for row in rows]

    def close(self) -> None:
        """Close all copies."""
        for copy in self.copies:
            copy.task.close()

    # --- state -------------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """The state: the seed of each running episode, and the actions so far.

        Raises:
            OpaqueValue: the task does not do the same with the same seed and actions, which are the state.
        """
        copies = {f"{i:05d}": copy.get_state() for i, copy in enumerate(self.copies)}
        if self._base is None or not self._repeats(copies["00000"]):
            raise OpaqueValue(f"the state of task {self.name!r}, which does not repeat its episodes from a seed")
        return {"base": self._base, "copies": copies}

    def set_state(self, state: State) -> None:
        """Continue with a state from `get_state`: each running episode is played again up to its last step.

        Raises:
            ArtifactError: it belongs to another task, or the task does not repeat the episode.
        """
        stored = state["copies"]
        if len(stored) != len(self.copies):
            raise ArtifactError(f"the file holds {len(stored)} copies of a task, there are {len(self.copies)} here")
        self._base = checked_seed(state["base"])
        for i, copy in enumerate(self.copies):
            copy.set_state(stored[f"{i:05d}"], self._seed_of(i), self._rows)

    def _repeats(self, state: State) -> bool:
        """Whether a new task that repeats the running episode of copy 0 gives the same observations."""
        first = self.copies[0]
        copy = Copy(self._make(), first.learners, first.spaces, first.fresh_players(), first.name)
        try:
            copy.set_state(state, self._seed_of(0), self._rows)
        except RlsdkError:
            return False
        finally:
            copy.task.close()
        return True


def _attribute(task: Task, name: str, of: str) -> Any:
    try:
        return getattr(task, name)
    except AttributeError:
        raise UsageError(f"task {of!r} has no {name!r}") from None


def _others(task: Task, learners: Sequence[Hashable], policies: object) -> Mapping[Hashable, Player]:
    """The players of the agents that do not learn."""
    spaces = {agent: task.action_space(agent) for agent in task.possible_agents if agent not in learners}
    return players_of(policies, spaces) if spaces else {}


def _has_masks(task: Task, learners: Sequence[Hashable], name: str) -> bool:
    """Whether the agents have action masks, in their observations or infos, after a reset."""
    observations, infos = asked(lambda: task.reset(seed=0), f"task {name!r}", "reset", 2)
    return any(
        seen_and_mask(observations[agent], infos.get(agent, {}))[1] is not None
        for agent in learners
        if agent in observations
    )


def make_agents_vec_env(
    env: object,
    n_envs: int = 1,
    *,
    agents: str | Sequence[str] | None = None,
    others: object = RANDOM,
    **kwargs: object,
) -> AgentsVector:
    """Copies of a PettingZoo task as a vector environment whose rows are agents.

    `make_vec_env(env, n_envs, vectorization="pettingzoo")` calls this function. For ids `pettingzoo/NAME` it is the default.

    Args:
        env: a name such as `simple_spread_v3`, an id `pettingzoo/NAME`, or a function that makes a `ParallelEnv` or an
            `AECEnv` that can be parallel.
        n_envs: the number of copies. The vector environment has a row for each agent of each copy.
        agents: names or roles of the agents that learn; None: all. The role of `adversary_0` is `adversary`.
        others: what the other agents do; see `rlsdk_pettingzoo.players.players_of`.
        kwargs: arguments of the task.

    Raises:
        EnvironmentFault: there is no such task, a package is missing, it cannot be parallel, agents have different spaces, or
            there are none.
        SettingsError: an argument is wrong.
    """
    if not isinstance(env, str) and not callable(env):
        raise SettingsError(
            f"env is a {type(env).__name__} that exists already; give the name of a task, or a function that makes a new one"
        )
    name = name_of_source(env).rpartition("/")[2]

    def make() -> Task:
        return make_task(env, kwargs, "parallel")

    return AgentsVector(make, require_copies(n_envs), name=name, agents=agents, others=others)
