"""The task of the clause `learns.bandit`: every part of an action has a target value that pays most."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlsdk_testing.patterns import SPACES, PatternEnv, action_with, misses, pattern


@pytest.mark.parametrize("kind", SPACES)
def test_the_wanted_action_is_in_the_space_and_pays_most(kind: str) -> None:
    space = SPACES[kind]
    one, two = pattern(space, True), pattern(space, False)
    wanted, other = action_with(space, one), action_with(space, two)
    assert space.contains(wanted)
    assert misses(space, one, wanted) == pytest.approx(np.zeros(len(one)), abs=1e-6)
    assert misses(space, one, other).min() > 0.6
    env = PatternEnv(space, [one])
    env.reset(seed=0)
    assert env.step(wanted)[1] == pytest.approx(1.0)
    assert env.step(other)[1] < 0.4


def test_patterns_of_parts_differ() -> None:
    assert pattern(SPACES["MultiBinary"], True) == [0.0, 1.0, 0.0]
    assert pattern(SPACES["Box"], False) == pytest.approx([0.85, 0.15])
    assert pattern(SPACES["Dict"], True) == pytest.approx([0.15, 1.0])


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(2, start=4), 0),
        (spaces.MultiDiscrete([2, 3], start=[4, 5]), [4, 4]),
        (SPACES["Box"], [[0.0, 1.0]]),
    ],
)
def test_an_action_outside_the_space_raises(space: spaces.Space[object], action: object) -> None:
    with pytest.raises(ValueError, match="outside"):
        PatternEnv(space, [[0.0, 0.0]]).step(np.array(action))


def test_each_state_has_its_pattern() -> None:
    space = SPACES["MultiDiscrete"]
    patterns = [pattern(space, first) for first in (True, False)]
    env = PatternEnv(space, patterns)
    for seed in range(8):
        seen, _ = env.reset(seed=seed)
        state = int(np.argmax(seen))
        assert env.step(action_with(space, patterns[state]))[1] == pytest.approx(1.0)
        assert env.step(action_with(space, patterns[1 - state]))[1] == pytest.approx(0.0)
    assert {int(np.argmax(env.reset(seed=seed)[0])) for seed in range(8)} == {0, 1}
