"""`norm_obs_keys`: the chosen entries of a Dict observation are normalized, each with its own statistics; others are not."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlsdk
from rlsdk.environments import make_vec_env
from tests.tables import in_one_test

KEYS = {"a": (50.0, (3,)), "k": None, "m": (7.0, (2, 2)), "z": (-90.0, (1,))}
SMALL: dict[str, dict[str, Any]] = {
    "ars": {"n_delta": 2},
    "maskable-ppo": {"n_steps": 8, "batch_size": 8, "use_masking": False},
    "qrdqn": {"learning_starts": 8, "buffer_size": 50, "batch_size": 4},
    "recurrent-ppo": {"n_steps": 8, "batch_size": 8, "policy_kwargs": {"lstm_hidden_size": 4}},
    "tqc": {"learning_starts": 8, "buffer_size": 50, "batch_size": 4, "policy_kwargs": {"net_arch": [4]}},
    "trpo": {"n_steps": 8, "batch_size": 8},
}


class Offset(gymnasium.Env[Any, Any]):
    """Observations with entries of different shapes and means. The list `seen` holds every observation."""

    observation_space = spaces.Dict(
        {
            key: spaces.Discrete(4) if given is None else spaces.Box(-np.inf, np.inf, given[1], np.float32)
            for key, given in KEYS.items()
        }
    )

    def __init__(self, box: bool) -> None:
        self.action_space: Any = spaces.Box(-1.0, 1.0, (1,), np.float32) if box else spaces.Discrete(2)
        self.seen: list[Any] = []

    def observation(self) -> Any:
        value: dict[str, Any] = {}
        for key, given in KEYS.items():
            if given is None:
                value[key] = np.int64(self.np_random.integers(4))
            else:
                value[key] = (given[0] + self.np_random.normal(size=given[1])).astype(np.float32)
        self.seen.append(value)
        return value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.now = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.now += 1
        return self.observation(), 1.0, False, self.now == 5, {}


@in_one_test
@pytest.mark.parametrize("chosen", [["z"], ["m", "z"], ["a"], None])
@pytest.mark.parametrize("name", list(SMALL))
def test_statistics_are_those_of_the_chosen_entries(name: str, chosen: list[str] | None) -> None:
    made: list[Offset] = []

    def source() -> Offset:
        made.append(Offset(name == "tqc"))
        return made[-1]

    env = make_vec_env(source, 1, vectorization="sync")
    policy = "MultiInputLstmPolicy" if name == "recurrent-ppo" else "MlpPolicy" if name == "ars" else "MultiInputPolicy"
    agent = rlsdk.make(
        name, env=env, policy=policy, normalize={"norm_obs_keys": chosen, "clip_obs": 4.0}, seed=0, **SMALL[name]
    )
    agent.learn(40 if name == "ars" else 16)
    assert agent.normalizer is not None
    floats = [key for key, given in KEYS.items() if given is not None]
    assert set(agent.normalizer.moments) == {f"observation[{key!r}]" for key in chosen or floats}
    for key in chosen or floats:
        moments = agent.normalizer.moments[f"observation[{key!r}]"]
        assert np.abs(moments.mean - KEYS[key][0]).max() < 1.5  # type: ignore[index]
        assert 0.05 < moments.variance.min() <= moments.variance.max() < 5.0
    observation = Offset(False).observation_space.sample() | {"a": np.full(3, 50.0, np.float32)}
    normalized = agent.normalizer.normalize_obs(observation)
    for key in floats:
        if chosen is not None and key not in chosen:
            np.testing.assert_array_equal(normalized[key], observation[key])
