"""An environment that records its episodes, to compare them with the counts and scores of a training."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.subject import ACTIONS, Subject

SHORTEST, LONGEST = 2, 7
"""The smallest and the largest number of steps of an episode."""


@dataclass(slots=True)
class NotedEpisode:
    """The observations and rewards of one episode."""

    observations: list[NDArray[np.float64]]
    """Each [F]. The first is the observation of the reset, so there is one observation more than rewards."""
    rewards: list[float] = field(default_factory=list)


class NotedEnv(AnySpaceEnv):
    """An environment with random observations, rewards and episode lengths, which appends each episode to `episodes`.

    An episode is appended when it begins; its steps are added when they are made.
    """

    def __init__(self, subject: Subject, episodes: list[NotedEpisode]) -> None:
        """`subject` determines the spaces. Several environments may share the list `episodes`."""
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
    """Return the number of steps of all episodes together."""
    return sum(len(episode.rewards) for episode in episodes)
