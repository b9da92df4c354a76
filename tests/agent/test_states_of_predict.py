"""The arguments `state` and `episode_start` of `predict`: the error for a wrong value names the problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlsdk
from rlsdk.errors import ObservationError

SEEN = np.zeros(4, np.float32)


def made(algorithm: str, **settings: Any) -> Any:
    return rlsdk.make(algorithm, env="CartPole-v1", n_steps=16, policy_kwargs={"net_arch": [4]}, seed=0, **settings)


@pytest.mark.parametrize(("algorithm", "settings"), [("recurrent-ppo", {}), ("trpo", {"frame_stack": 2})])
def test_a_state_that_does_not_fit_is_named(algorithm: str, settings: Any) -> None:
    agent = made(algorithm, **settings)
    _, of_two = agent.predict(np.stack([SEEN] * 2))
    arrays = (np.zeros((1, 1, 8)), np.zeros((1, 1, 8)))
    for observation, state, message in (
        (SEEN, arrays, "not the memory of this policy"),
        (SEEN, 3, "not the memory of this policy"),
        (SEEN, of_two, "another number of observations than 1"),
        (np.stack([SEEN] * 3), of_two, "another number of observations than 3"),
    ):
        with pytest.raises(ObservationError, match=message) as caught:
            agent.predict(observation, state=state)
        assert "\n" not in str(caught.value)
    agent.predict(np.stack([SEEN] * 2), state=of_two, episode_start=[True, False])


@pytest.mark.parametrize("algorithm", ["recurrent-ppo", "trpo"])
def test_as_many_starts_as_observations(algorithm: str) -> None:
    agent = made(algorithm)
    for observation, count in ((SEEN, 2), (np.stack([SEEN] * 2), 3)):
        with pytest.raises(ObservationError, match=rf"episode_start has the shape \({count},\)"):
            agent.predict(observation, episode_start=np.ones(count))
    agent.predict(SEEN, episode_start=np.ones(1))
    agent.predict(np.stack([SEEN] * 2), episode_start=True)


def test_a_policy_that_remembers_nothing_ignores_the_state() -> None:
    agent = made("trpo")
    expected, _ = agent.predict(SEEN, deterministic=True)
    for state in (np.zeros(3), (np.zeros(2), np.zeros(2)), "anything"):
        action, after = agent.predict(SEEN, state=state, deterministic=True)
        assert action == expected
        assert after is None
