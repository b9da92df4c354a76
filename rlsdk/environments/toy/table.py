"""Tasks of a few states and two outcomes per state, given as a table: their best answers and values follow by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlsdk.environments.toy.position import position_in


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step gives: the reward, the states that may follow (each equally likely), and how the episode ends."""

    reward: float
    states: tuple[int, ...] = (0,)
    """At the end of an episode: the states that the last observation may show."""
    ends: Literal["no", "terminated", "truncated"] = "no"


CHAIN = (
    (Outcome(1.0, (0,), "terminated"), Outcome(0.0, (1,))),
    (Outcome(1.6, (0,), "terminated"), Outcome(1.6, (0,), "terminated")),
)
"""Two states: 1 at once, or 1.6 a step later. The later one is worth more from a discount of 0.625 on."""


class TableEnv(gymnasium.Env[object, object]):
    """A task of a few states, each with a low and a high outcome.

    The low end of the action space gives the low outcome, the high end the high one. An action in between gives the high one
    with the probability `position_in(space, action)`.
    """

    def __init__(
        self,
        outcomes: Sequence[tuple[Outcome, Outcome]] = CHAIN,
        starts: Sequence[int] = (0,),
        action_space: gymnasium.Space[object] | None = None,
        observations: NDArray[np.float32] | Literal["one-hot", "number"] = "one-hot",
        episode_length: int | None = None,
    ) -> None:
        """`observations`: float32 [states, F], "one-hot" for rows with a single 1, or "number" for a Discrete
        space. `episode_length`: a time limit."""
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
    """The space of observations float32 [states, F]: from -1 to 1 in each number, wider where one lies outside."""
    ends = np.ones(rows.shape[1:], np.float32)
    return spaces.Box(np.minimum(rows.min(0), -ends), np.maximum(rows.max(0), ends))
