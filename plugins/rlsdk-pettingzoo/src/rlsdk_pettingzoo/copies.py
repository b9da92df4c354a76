"""One copy of a parallel environment: the agents that are alive, and their running episodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments import to_space
from rlsdk.errors import ArtifactError, EnvironmentFault, shown
from rlsdk.interfaces import State
from rlsdk.records import Episode
from rlsdk.spaces import Space, map_leaves
from rlsdk_pettingzoo.players import Player
from rlsdk_pettingzoo.rows import Rows, actions_of, digest_of, observation_of
from rlsdk_pettingzoo.tasks import Task, called, checked_mask, choices_allowed, require_choice, seen_and_mask

LARGEST = 3.4e38
"""The largest reward that float32 holds."""


def asked(call: Callable[[], object], name: str, what: str, parts: int) -> Any:
    """The answer of the task `name`, a tuple of `parts` tables. Errors in it become an EnvironmentFault with its name."""
    given = called(call, name, what)
    if not isinstance(given, tuple) or len(given) != parts or not all(isinstance(part, Mapping) for part in given):
        form = "(observations, infos)" if parts == 2 else "(observations, rewards, terminations, truncations, infos)"
        raise EnvironmentFault(f"{name}: {what} returned {shown(given, 100)}, not tables by agent {form}")
    return given


class Copy:
    """Steps one task and writes what happens to its agents into `Rows`."""

    def __init__(
        self,
        task: Task,
        learners: Sequence[Hashable],
        spaces: tuple[Space, Space],
        others: Mapping[Hashable, Player],
        name: str,
    ) -> None:
        """`learners`: the agents with rows, in their order; `others`: the players of the other agents."""
        self.task, self.learners, self.spaces, self.others, self.name = task, list(learners), spaces, others, name
        self.episode, self.length = -1, 0
        self._alive: dict[Hashable, list[float]] = {}
        """Agent that is alive -> [return so far, length so far]."""
        self._seen: dict[Hashable, tuple[object, NDArray[np.bool_] | None]] = {}
        """Agent that is alive -> (what it sees, its mask)."""
        self._actions: list[list[object]] = []

    def fresh_players(self) -> dict[Hashable, Player]:
        """New players with the same policies."""
        return {agent: own.fresh() for agent, own in self.others.items()}

    def trace(self) -> str:
        """What the agents see now and their returns so far, as a short text that can be compared."""
        seen = [(agent, counts, self._seen[agent][0]) for agent, counts in self._alive.items()]
        return digest_of(
            [(f"{agent} {counts}", observation_of(self.spaces[0], own, self.name)) for agent, counts, own in seen]
        )

    def begin(self, seed_of: Callable[[int], int], rows: Rows, first: int) -> None:
        """Begin the next episode. `first` is the row of the first agent. Raises EnvironmentFault if there are no agents."""
        self.episode += 1
        self._begin(seed_of(self.episode), rows, first)

    def _begin(self, seed: int, rows: Rows, first: int) -> None:
        self.length, self._actions, self._alive, self._seen = 0, [], {}, {}
        for i, player in enumerate(self.others.values()):
            player.begin(seed + i)
        given = asked(lambda: self.task.reset(seed=seed), self.name, "reset", 2)
        observations, infos = given
        if not self.task.agents:
            raise EnvironmentFault(f"{self.name}: there are no agents after reset(); a task needs at least one")
        self._appear(observations, infos, rows, first, "reset")

    def _appear(self, observations: Any, infos: Any, rows: Rows, first: int, call: str) -> None:
        """Take in what each agent sees, and begin the episodes of those that were not alive."""
        for agent in self.task.agents:
            where = f"{self.name}, agent {agent!r}, {call} (step {self.length} of the episode)"
            if agent not in self.learners and agent not in self.others:
                raise EnvironmentFault(f"{where}: it is in `agents`, but not in possible_agents; list it there")
            if agent not in observations:
                raise EnvironmentFault(f"{where}: it is in `agents`, but has no observation")
            seen, given = seen_and_mask(observations[agent], infos.get(agent, {}))
            mask = None if given is None else checked_mask(given, self._action_space(agent), where)
            self._seen[agent] = seen, mask
            if agent not in self.learners:
                if mask is not None:
                    require_choice(mask, self._action_space(agent), where)
                continue
            row, is_new = first + self.learners.index(agent), agent not in self._alive
            if is_new:
                self._alive[agent] = [0.0, 0.0]
                rows.infos[row] = rows.infos[row] or infos.get(agent, {})
            self._require_mask(mask, rows, where)
            rows.write(row, seen, mask, is_first=is_new, where=where)

    def _action_space(self, agent: Hashable) -> Space:
        if agent in self.learners:
            return self.spaces[1]
        return to_space(self.task.action_space(agent), "action")

    def _require_mask(self, mask: NDArray[np.bool_] | None, rows: Rows, where: str) -> None:
        if rows.mask is None:
            return
        if mask is None:
            raise EnvironmentFault(f"{where}: it has no action mask, but agents had one at the first reset")
        require_choice(mask, self.spaces[1], where)

    def step(self, actions: Sequence[object], rows: Rows, first: int) -> None:
        """Make a step. `actions`: those of the learners, in their order; those of agents that are not alive are ignored."""
        self._actions.append(list(actions))
        before, chosen = dict(self._alive), dict[Hashable, object]()
        for agent in self.task.agents:
            if agent in self.others:
                chosen[agent] = self.others[agent].act(*self._seen[agent])
            else:
                chosen[agent] = actions[self.learners.index(agent)]
        given = asked(lambda: self.task.step(chosen), self.name, f"step({shown(chosen, 100)})", 5)
        observations, rewards, terminated, truncated, infos = given
        self.length += 1
        for row, agent in enumerate(self.learners, first):
            if agent in before:
                flags = bool(terminated.get(agent, False)), bool(truncated.get(agent, False))
                self._count(agent, row, rewards.get(agent, 0.0), flags, rows)
                rows.infos[row] = infos.get(agent, {})
                if any(flags):
                    self._end(agent, row, observations, infos, rows)
        self._seen = {agent: seen for agent, seen in self._seen.items() if agent in self.task.agents}
        self._appear(observations, infos, rows, first, "step")

    def _count(self, agent: Hashable, row: int, reward: Any, flags: tuple[bool, bool], rows: Rows) -> None:
        """Count the reward of an agent that was alive. Raises EnvironmentFault if it is not a number or the agent left."""
        where = f"{self.name}, agent {agent!r}, step {self.length} of the episode"
        try:
            value = float(np.asarray(reward).item())
        except (TypeError, ValueError):
            value = float("nan")
        if not abs(value) <= LARGEST:
            raise EnvironmentFault(f"{where}: the reward is {shown(reward, 60)}; it must be a finite float32")
        if not any(flags) and agent not in self.task.agents:
            raise EnvironmentFault(
                f"{where}: it left `agents`, but is neither terminated nor truncated; set one of them"
            )
        rows.reward[row], rows.valid[row] = value, True
        rows.terminated[row], rows.truncated[row] = flags
        self._alive[agent][0] += value
        self._alive[agent][1] += 1

    def _end(self, agent: Hashable, row: int, observations: Any, infos: Any, rows: Rows) -> None:
        """End the episode of an agent: keep its last observation, and report its return and length."""
        where = f"{self.name}, agent {agent!r}, step {self.length} of the episode"
        info = infos.get(agent, {})
        if agent in observations:
            seen, given = seen_and_mask(observations[agent], info)
            mask = None if given is None else checked_mask(given, self.spaces[1], where)
        elif rows.truncated[row] and not rows.terminated[row]:
            raise EnvironmentFault(
                f"{where}: it is truncated, but has no last observation, from which the rest of its return is estimated"
            )
        else:
            seen, mask = self._seen[agent]  # a terminated agent has no further return, so nothing is read from it
        if rows.mask is not None and (mask is None or not choices_allowed(mask, self.spaces[1])):
            mask = np.ones(rows.mask.shape[1], np.bool_)  # no action follows the end
        rows.final.append((observation_of(self.spaces[0], seen, where), mask))
        total, length = self._alive.pop(agent)
        success = info.get("is_success")
        rows.episodes.append(Episode(row, total, int(length), None if success is None else bool(success)))

    # --- state -------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, object]:
        """The number of the episode, and the actions of its steps, [T, agents, ..] nested as the action space."""
        steps = [_stacked(self.spaces[1], step) for step in self._actions]
        state: dict[str, object] = {"episode": self.episode, "length": len(steps)}
        if steps:
            stacked = map_leaves(self.spaces[1], lambda _, __, *leaves: torch.from_numpy(np.stack(leaves)), *steps)
            state["actions"] = {"all": stacked} if not isinstance(stacked, tuple) else dict(enumerate(stacked))
        return state | {"trace": self.trace()}

    def set_state(self, state: State, seed_of: Callable[[int], int], rows: Callable[[], Rows]) -> None:
        """Play the episode of a state from `get_state` again, up to its last step.

        Raises:
            ArtifactError: the task did something else than before.
        """
        self.episode = int(state["episode"])
        self._begin(seed_of(self.episode), rows(), 0)
        for t in range(int(state["length"])):
            if not self.task.agents:
                break
            actions = state["actions"]
            given = actions["all"] if "all" in actions else tuple(actions[i] for i in range(len(actions)))
            taken = map_leaves(self.spaces[1], lambda _, __, leaf, t=t: leaf[t], given)
            self.step(actions_of(self.spaces[1], taken, len(self.learners)), rows(), 0)
        if self.trace() != state["trace"]:
            raise ArtifactError(
                f"{self.name} does not repeat the episode of the file: it, or the policy of another agent, has changed; begin"
                " new episodes with load(..., force_reset=True)"
            )


def _stacked(space: Space, actions: Sequence[object]) -> Any:
    return map_leaves(space, lambda _, __, *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *actions)
