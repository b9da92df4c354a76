"""Tasks with a few states and two outcomes per state, given as a table.

Their best actions and values can be computed manually.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlsdk_envs.toy.position import position_in


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step: the reward, the possible next states (equally likely), and how the episode ends."""

    reward: float
    states: tuple[int, ...] = (0,)
    """The possible next states. If the episode ends, the last observation shows one of them."""
    ends: Literal["no", "terminated", "truncated"] = "no"


CHAIN = (
    (Outcome(1.0, (0,), "terminated"), Outcome(0.0, (1,))),
    (Outcome(1.6, (0,), "terminated"), Outcome(1.6, (0,), "terminated")),
)
"""A task with two states: a reward of 1 immediately, or 1.6 one step later. Waiting is better for a discount above 0.625."""


class TableEnv(gymnasium.Env[object, object]):
    """A task with a few states and two outcomes per state, (low, high).

    An action leads to the high outcome with the probability `position_in(space, action)`, otherwise to the low outcome.
    """

    def __init__(
        self,
        outcomes: Sequence[tuple[Outcome, Outcome]] = CHAIN,
        starts: Sequence[int] = (0,),
        action_space: gymnasium.Space[object] | None = None,
        observations: NDArray[np.float32] | Literal["one-hot", "number"] = "one-hot",
        episode_length: int | None = None,
    ) -> None:
        """Make a task.

        Args:
            outcomes: (low outcome, high outcome) of each state.
            starts: the states in which an episode may begin, equally likely.
            action_space: any action space; None: Discrete(2).
            observations: float32 [states, F], "one-hot" for one-hot vectors, or "number" for a Discrete space.
            episode_length: the time limit, in steps; None: no limit.
        """
        self.outcomes, self.starts = tuple(outcomes), tuple(starts)
        self.episode_length, self._steps = episode_length, 0
        self.action_space = action_space or spaces.Discrete(2)
        count = len(self.outcomes)
        rows = observations if isinstance(observations, np.ndarray) else np.eye(count, dtype=np.float32)
        numbers = isinstance(observations, str) and observations == "number"
        self.shown: Sequence[object] = range(count) if numbers else list(rows)
        """The observation of each state."""
        self.observation_space: gymnasium.Space[object] = spaces.Discrete(count) if numbers else _box_around(rows)
        self.state = self.starts[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._arrive(self.starts), {}

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        high = self.np_random.random() < position_in(self.action_space, action)
        outcome = self.outcomes[self.state][high]
        seen = self._arrive(outcome.states)
        self._steps += 1
        over = outcome.ends == "truncated" or self._steps == self.episode_length
        return seen, outcome.reward, outcome.ends == "terminated", over and outcome.ends != "terminated", {}

    def _arrive(self, states: Sequence[int]) -> object:
        self.state = states[int(self.np_random.integers(len(states)))]
        seen = self.shown[self.state]
        return seen.copy() if isinstance(seen, np.ndarray) else seen


def _box_around(rows: NDArray[np.float32]) -> spaces.Box:
    """The space of observations float32 [states, F]. Each number has the bounds -1 and 1, or wider ones if necessary."""
    ends = np.ones(rows.shape[1:], np.float32)
    return spaces.Box(np.minimum(rows.min(0), -ends), np.maximum(rows.max(0), ends))
