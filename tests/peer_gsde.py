"""The steps at which gSDE draws noise matrices, in our training and in that of stable-baselines3."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlsdk.networks.action_heads import StateDependentNoise

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Counting(gymnasium.Env[Any, Any]):
    """Episodes of seven steps; `taken` counts the steps of all instances."""

    observation_space, action_space = BOX, BOX
    taken = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.now = 0
        return self.np_random.random(2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        Counting.taken, self.now = Counting.taken + 1, self.now + 1
        return self.np_random.random(2).astype(np.float32), 0.0, False, self.now == 7, {}


def drawn_by_ours(model: Any, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Train for `steps` steps; return the numbers of steps before each draw of noise matrices."""
    seen, original = set[int](), StateDependentNoise.matrices
    monkeypatch.setattr(StateDependentNoise, "matrices", lambda *given: (seen.add(Counting.taken), original(*given))[1])
    monkeypatch.setattr(Counting, "taken", 0)
    model.learn(steps)
    return sorted(seen)


def drawn_by_theirs(model: Any, owner: Any, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The same for the peer; `owner` has the method `reset_noise`. Draws during an update are not counted."""
    seen, original, train = set[int](), owner.reset_noise, model.train

    def noted(*given: Any, **named: Any) -> None:
        if not training:
            seen.add(Counting.taken)
        original(*given, **named)

    def trained(*given: Any, **named: Any) -> None:
        training.append(True)
        train(*given, **named)
        training.pop()

    training = list[bool]()
    monkeypatch.setattr(owner, "reset_noise", noted)
    monkeypatch.setattr(model, "train", trained)
    monkeypatch.setattr(Counting, "taken", 0)
    model.learn(steps)
    return sorted(seen)
