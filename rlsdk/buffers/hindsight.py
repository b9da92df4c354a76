"""Hindsight experience replay: in part of each batch the goal is replaced by one that the episode achieved.

Source: Andrychowicz et al. 2017, arXiv:1707.01495, algorithm 1, with relabelling at sampling.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, StrEnum
from typing import TypeVar, Unpack

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.buffers.replay import ReplayBuffer, ReplayOptions
from rlsdk.errors import SettingsError, UnsupportedSpaceError, UsageError, suggest
from rlsdk.interfaces import BuildContext, State, explain_names
from rlsdk.records import Observation, Rollout, Transitions
from rlsdk.settings.off_policy import OffPolicyConfig
from rlsdk.spaces import Dict

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
GOAL, ACHIEVED = "desired_goal", "achieved_goal"
NO_ROW, MAX_LENGTH = -1, 2**62


class GoalSelectionStrategy(StrEnum):
    """The step of the episode whose achieved goal replaces the goal. The members are the texts that settings accept."""

    FUTURE = "future"
    FINAL = "final"
    EPISODE = "episode"


@explain_names
class HindsightReplay:
    """A `ReplayBuffer` of a goal environment that replaces the goal of sampled transitions.

    A transition gets another goal with probability `n_sampled_goal / (n_sampled_goal + 1)`. The new goal is the one achieved by
    the same or a later step of the episode (`future`), by its last step (`final`), or by any step (`episode`). The reward is
    computed for the new goal, and so is the termination if the environment has `compute_terminated`. Transitions of an episode
    that has not ended are not changed.
    """

    def __init__(
        self,
        context: BuildContext,
        capacity: int,
        gamma: float,
        *,
        n_sampled_goal: int = 4,
        goal_selection_strategy: str | Enum = "future",
        n_steps: int = 1,
        **storage: Unpack[ReplayOptions],
    ) -> None:
        """
        Args:
            context: the spaces, device and environment functions that the buffer is built for.
            capacity: the number of transitions, over all environments.
            gamma: the discount factor.
            n_sampled_goal: how many transitions get another goal for each one that does not.
            goal_selection_strategy: a `GoalSelectionStrategy`, its text, or a member of another enumeration with that name.
            n_steps: must be 1.
            storage: options of `ReplayBuffer`.
        """
        space = context.observation_space
        if context.frames is not None:
            raise SettingsError(
                "hindsight replay exchanges goals, which frame_stack would stack; leave frame_stack out"
            )
        if not isinstance(space, Dict) or not {GOAL, ACHIEVED} <= set(space.spaces):
            raise UnsupportedSpaceError(
                f"hindsight replay needs a Dict observation with {ACHIEVED!r} and {GOAL!r}, not {space}"
            )
        # an achieved goal takes the place of the desired one, so both need one shape and dtype
        if space.spaces[GOAL] != space.spaces[ACHIEVED]:
            raise UnsupportedSpaceError(f"hindsight replay needs equal spaces for {ACHIEVED!r} and {GOAL!r}")
        if isinstance(n_sampled_goal, bool) or not isinstance(n_sampled_goal, int) or n_sampled_goal < 0:
            raise SettingsError(f"hindsight replay: n_sampled_goal = {n_sampled_goal!r} must be a whole number >= 0")
        if n_steps > 1:
            raise SettingsError("hindsight replay looks one step ahead: rewards on the way would need their own goals")
        self.inner = ReplayBuffer(context, capacity, gamma, **storage)
        self.context, self.gamma, self.strategy = context, gamma, _strategy_of(goal_selection_strategy)
        self.share = n_sampled_goal / (n_sampled_goal + 1)
        envs = context.num_envs
        self._first_row, self._last_row = torch.empty(0, envs, dtype=torch.int64), torch.empty(0, envs)
        # numpy: single numbers per environment change at every step
        self._begin, self._length = np.zeros(envs, np.int64), np.zeros(envs, np.int64)  # of running episodes

    def reconfigure(self, config: OffPolicyConfig) -> None:
        """Use `gamma` of new settings; see `ReplayBuffer.reconfigure`.

        Raises:
            SettingsError: `n_steps` is more than 1.
        """
        if getattr(config, "n_steps", 1) > 1:
            raise SettingsError("hindsight replay looks one step ahead: rewards on the way would need their own goals")
        self.inner.reconfigure(config)
        self.gamma = self.inner.gamma

    def __len__(self) -> int:
        return len(self.inner)

    def bytes_required(self) -> int:
        return self.inner.bytes_required() + 2 * 8 * self.inner.ring * self.context.num_envs

    def _allocate(self) -> None:
        """Allocate the first and last row of the episode of every row, unless this has been done."""
        if not len(self._last_row):
            shape = self.inner.ring, self.context.num_envs
            self._first_row, self._last_row = torch.zeros(shape, dtype=torch.int64), torch.full(shape, NO_ROW)

    def extend(self, item: Rollout[CarryT, ExtrasT]) -> None:
        """Append T steps of every environment; they replace the oldest rows of a full buffer."""
        self._allocate()
        steps, row = item.steps, self.inner.head
        first, ended = steps.observation.is_first.cpu().numpy(), (steps.terminated | steps.truncated).cpu().numpy()
        self.inner.extend(item)
        for starts, ends in zip(first, ended, strict=True):
            # a reset without an end leaves the episode before it open
            for env in (starts & (self._length > 0)).nonzero()[0]:
                self._close(env, (row - 1) % self.inner.ring)
            self._begin[starts] = row
            self._last_row[row], self._first_row[row] = NO_ROW, torch.from_numpy(self._begin)
            self._length += 1
            for env in ends.nonzero()[0]:
                self._close(env, row)
            row = (row + 1) % self.inner.ring

    def _close(self, env: int, row: int) -> None:
        """Record that the episode of `env` ended at `row`, for all rows of the episode."""
        # older rows of a long episode were overwritten
        length = min(int(self._length[env]), self.inner.rows)
        self._last_row[(row - torch.arange(length)) % self.inner.ring, env] = row
        self._length[env] = 0

    def sample(self, size: int, generator: Generator) -> Transitions:
        """Draw `size` transitions with replacement, and replace the goal of some.

        Raises:
            UsageError: the buffer is empty, or the agent has no environment to compute rewards for the new goals.
        """
        # the goals are exchanged after the draw, so the rows are those of a uniform buffer
        index = self.inner.draw(size, generator)
        batch = self.inner.at(index)
        chance, place = torch.rand((2, size), generator=generator, device=index.device).unbind()
        row, env = index.cpu() // self.context.num_envs, index.cpu() % self.context.num_envs
        # the goals of an episode that still runs are not known yet
        known = self._last_row[row, env] != NO_ROW
        chosen = (known & (chance.cpu() < self.share)).nonzero().squeeze(-1)
        if not len(chosen):
            return batch
        source = self._source(row[chosen], env[chosen], place.cpu()[chosen])
        goal = self.inner.at((source * self.context.num_envs + env[chosen]).to(index.device)).next_observation.features
        return self._relabeled(batch, chosen.to(index.device), goal[ACHIEVED])

    def _source(self, row: Tensor, env: Tensor, place: Tensor) -> Tensor:
        """The rows [M] whose next achieved goals become the goals of `row` [M].

        `place` [M], in [0, 1), selects among the possible rows.
        """
        ring, last = self.inner.ring, self._last_row[row, env]
        if self.strategy is GoalSelectionStrategy.FINAL:
            return last
        ahead, back = (last - row) % ring, torch.zeros_like(row)
        if self.strategy is GoalSelectionStrategy.EPISODE:
            oldest = (self.inner.head - self.inner.filled) % ring
            # the first rows of the episode may be overwritten by now
            back = torch.minimum((row - self._first_row[row, env]) % ring, (row - oldest) % ring)
        # one more than the distance, so that the row's own goal is possible too
        return (row - back + (place * (ahead + back + 1)).long()) % ring

    def _relabeled(self, batch: Transitions, rows: Tensor, goal: Tensor) -> Transitions:
        """The batch with `goal` [M, ..] as the goal of its `rows` [M]."""
        if self.context.goals is None:
            raise UsageError("hindsight replay needs the environment for rewards; give the agent an environment")
        achieved = batch.next_observation.features[ACHIEVED].index_select(0, rows)
        reward, terminated = self.context.goals.compute_reward(achieved, goal)
        # in place: a batch is a copy of the stored rows
        batch.reward[rows] = reward.to(batch.reward.device)
        if terminated is not None:
            # another goal may end the episode at another step
            batch.discount[rows] = self.gamma * (~terminated).to(batch.discount)
        seen, after = (_with_goal(part, rows, goal) for part in (batch.observation, batch.next_observation))
        return replace(batch, observation=seen, next_observation=after)

    def state_dict(self) -> State:
        """The state of the buffer, and the first and last rows of its episodes."""
        self._allocate()
        running = {"begin": torch.from_numpy(self._begin.copy()), "length": torch.from_numpy(self._length.copy())}
        rows = {"first": self._first_row.clone(), "last": self._last_row.clone()}
        return {"memory": self.inner.state_dict(), "rows": rows, "running": running}

    def load_state_dict(self, state: State) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            UsageError: the state does not fit this buffer; see also `replay_state.put_back`.
        """
        rows = {name: state["rows"][name] for name in ("first", "last")}
        running = {name: state["running"][name] for name in ("begin", "length")}
        ring, envs = self.inner.ring, self.context.num_envs
        lowest = {"first": 0, "last": NO_ROW, "begin": 0, "length": 0}
        highest = {"first": ring - 1, "last": ring - 1, "begin": ring - 1, "length": MAX_LENGTH}
        for name, value in {**rows, **running}.items():
            shape = (ring, envs) if name in rows else (envs,)
            if value.shape != shape or value.dtype != torch.int64:
                raise UsageError(
                    "the stored episodes do not fit this buffer; build the agent with the same buffer_size, n_envs and"
                    " optimize_memory_usage"
                )
            if int(value.min()) < lowest[name] or int(value.max()) > highest[name]:
                raise UsageError(f"the stored episodes have {name} outside this buffer")
        self.inner.load_state_dict(state["memory"])
        self._allocate()
        self._first_row.copy_(rows["first"])
        self._last_row.copy_(rows["last"])
        # copies, because the state belongs to the caller
        self._begin, self._length = (value.cpu().numpy().copy() for value in running.values())


def _strategy_of(value: str | Enum) -> GoalSelectionStrategy:
    name = value.name.lower() if isinstance(value, Enum) else value
    known = [str(strategy) for strategy in GoalSelectionStrategy]
    if name not in known:
        raise SettingsError(
            f"hindsight replay: goal_selection_strategy {value!r} is unknown; {suggest(str(name), known)}"
        )
    return GoalSelectionStrategy(name)


def _with_goal(observation: Observation, rows: Tensor, goal: Tensor) -> Observation:
    goals = observation.features[GOAL].clone()
    goals[rows] = goal
    return replace(observation, features={**observation.features, GOAL: goals})
