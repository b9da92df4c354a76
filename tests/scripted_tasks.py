"""A parallel task whose agents live by a script, and what a step by step reading of the script expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

ACTIONS = 3
TERMINATED, TRUNCATED = "terminated", "truncated"


@dataclass(frozen=True)
class Life:
    """An agent acts in the steps `first` to `last` of an episode of the task, counted from 0; then it ends as `end`."""

    first: int
    last: int
    end: str


Script = Sequence[Sequence[Life]]
"""The lives of each agent, in order of time."""


def living(lives: Sequence[Life], t: int) -> Life | None:
    """The life in which an agent acts in step t."""
    return next((life for life in lives if life.first <= t <= life.last), None)


class Scripted(ParallelEnv[str, Any, Any]):
    """Observations are [agent, t, noise of the seed]; the reward is 10 * agent + t + action / 4."""

    metadata = {"name": "scripted"}  # noqa: RUF012  # PettingZoo's own declaration

    def __init__(self, script: Script, *, masks: str = "none", start: int = 0) -> None:
        self.script, self.masks, self.start = script, masks, start
        self.possible_agents = [f"{'wolf' if i else 'sheep'}_{i}" for i in range(len(script))]
        self.length = 1 + max(life.last for lives in script for life in lives)
        self.received: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> Any:
        seen = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        mask = spaces.Box(0, 1, (ACTIONS,), np.int8)
        return spaces.Dict(observation=seen, action_mask=mask) if self.masks == "observation" else seen

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(ACTIONS, start=self.start)

    def allowed(self, agent: int) -> list[int]:
        return [int((self.t + agent + choice) % ACTIONS != 0) for choice in range(ACTIONS)]

    def _seen(self, agent: int) -> Any:
        seen = np.array([agent, self.t, self.noise], np.float32)
        return {"observation": seen, "action_mask": self.allowed(agent)} if self.masks == "observation" else seen

    def _tables(self, shown: Sequence[int]) -> tuple[dict[str, Any], dict[str, Any]]:
        names = self.possible_agents
        infos = {names[i]: {"action_mask": self.allowed(i)} if self.masks == "info" else {"t": self.t} for i in shown}
        return {names[i]: self._seen(i) for i in shown}, infos

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.noise = 0, np.random.default_rng(seed).random()
        now = [i for i, lives in enumerate(self.script) if living(lives, 0)]
        self.agents = [self.possible_agents[i] for i in now]
        return self._tables(now)

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents)
        self.received.append(dict(actions))
        before = [i for i, name in enumerate(self.possible_agents) if name in self.agents]
        t, self.t = self.t, self.t + 1
        ends = {i: living(self.script[i], t) for i in before}
        over = [i for i, life in ends.items() if life is not None and life.last == t]
        after = [i for i, lives in enumerate(self.script) if living(lives, self.t) and i not in over]
        if self.t >= self.length:
            after = []
        self.agents = [self.possible_agents[i] for i in after]
        observations, infos = self._tables(sorted({*over, *after}))
        names = self.possible_agents
        rewards = {names[i]: 10.0 * i + t + (actions[names[i]] - self.start) / 4 for i in before}
        flags = [
            {names[i]: i in over and getattr(ends[i], "end", "") == kind for i in before}
            for kind in (TERMINATED, TRUNCATED)
        ]
        return observations, rewards, *flags, infos
