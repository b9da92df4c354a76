"""The number of conversions between numpy and torch in one training step."""

from __future__ import annotations

from collections import Counter
from types import FrameType
from typing import Any

import pytest

import rlsdk
from tests.training_trace import ProfiledRound

CROSSINGS = frozenset({"numpy", "from_numpy", "as_tensor", "__array__"})
SETTINGS: dict[str, dict[str, Any]] = {
    "tqc": {"buffer_size": 1000, "learning_starts": 50},
    "trpo": {"n_steps": 64, "batch_size": 64},
}
STEPS = {"tqc": 1, "trpo": 64}
"""Environment steps per round, by algorithm."""


def crossings_of(name: str, **settings: Any) -> Counter[str]:
    """Count the C functions that convert between numpy and torch in one round after a warm-up, with their callers."""
    found: Counter[str] = Counter()

    def called(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in CROSSINGS:
            found[f"{function.__name__} in {frame.f_code.co_qualname}"] += 1

    first = 120 if STEPS[name] == 1 else 2
    model = rlsdk.make(name, env="Pendulum-v1", seed=0, **SETTINGS[name], **settings)
    model.learn((first + 2) * STEPS[name], callback=ProfiledRound(first, called))
    return found


@pytest.mark.parametrize(("settings", "most"), [({}, 8), ({"normalize": True}, 10)], ids=str)
def test_an_off_policy_step_crosses_rarely(settings: dict[str, Any], most: int) -> None:
    """The environment and networks with few rows compute in numpy; no value is converted between them.

    Numpy also selects the smallest atoms of the target, in a quarter of torch's time, which takes two conversions.
    """
    found = crossings_of("tqc", **settings)
    assert found.total() <= most, dict(found)
