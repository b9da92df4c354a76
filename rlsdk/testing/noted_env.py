"""An environment that notes what it played, for comparing with what a training counts and scores."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.toy import AnySpaceEnv
from rlsdk.testing.subject import ACTIONS, Subject

SHORTEST, LONGEST = 2, 7
"""Steps of an episode."""


@dataclass(slots=True)
class NotedEpisode:
    """An episode as the environment played it."""

    observations: list[NDArray[np.float64]]
    """Each [F]; the first is that of the reset, so there is one more than rewards."""
    rewards: list[float] = field(default_factory=list)


class NotedEnv(AnySpaceEnv):
    """Random observations, rewards and lengths of episodes; appends every episode to `episodes` when it begins."""

    def __init__(self, subject: Subject, episodes: list[NotedEpisode]) -> None:
        """With the usual spaces of `subject`; `episodes`: may belong to several environments."""
        super().__init__(subject.seen, ACTIONS[subject.action_kind])
        self.episodes = episodes

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        observation, info = super().reset(seed=seed, options=options)
        self.episode_length = int(self.np_random.integers(SHORTEST, LONGEST + 1))
        self.episode = NotedEpisode([np.array(observation, np.float64)])
        self.episodes.append(self.episode)
        return observation, info

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        result = super().step(action)
        self.episode.observations.append(np.array(result[0], np.float64))
        self.episode.rewards.append(result[1])
        return result


def steps_in(episodes: list[NotedEpisode]) -> int:
    """How many steps they have together."""
    return sum(len(episode.rewards) for episode in episodes)
