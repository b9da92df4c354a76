"""Candidates get observations as one vector, normalized with the statistics of the policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.networks import encoded_slices
from rlsdk_ars.episodes import encoder_of, flat_statistics
from rlsdk_envs import AnySpaceEnv

SPACE = spaces.Dict(
    {
        "a": spaces.Box(49.0, 51.0, (3,), np.float32),
        "k": spaces.Discrete(4),
        "m": spaces.Box(6.0, 8.0, (2, 2), np.float32),
        "z": spaces.Box(-91.0, -89.0, (1,), np.float32),
    }
)


def trained(count: int = 1, steps: int = 40, **settings: Any) -> Any:
    env = make_vec_env(lambda: AnySpaceEnv(SPACE, spaces.Discrete(2), 5), count, vectorization="sync")
    return rlsdk.make("ars", env=env, normalize=settings, seed=0, n_delta=2).learn(steps)


@pytest.mark.parametrize("chosen", [["z"], ["m"], None])
@pytest.mark.parametrize("norm_obs", [True, False])
def test_candidates_see_what_the_policy_sees(chosen: list[str] | None, norm_obs: bool) -> None:
    """The result equals that of the normalizer for single observations."""
    agent = trained(norm_obs_keys=chosen, clip_obs=0.5, norm_obs=norm_obs)
    mean, factor, bound = flat_statistics(agent.normalizer.observations)
    encode = encoder_of(agent.context.observation_space)
    SPACE.seed(3)
    for _ in range(10):
        observation = SPACE.sample()
        played = np.clip((encode(observation) - mean) * factor, -bound, bound)
        seen = encode(agent.normalizer.normalize_obs(observation))
        np.testing.assert_allclose(played, seen, rtol=1e-4, atol=1e-4)


def test_the_same_statistics_wherever_candidates_are_played() -> None:
    agents = [trained(count, 60, norm_obs_keys=["m", "z"]) for count in (1, 3)]
    found = [[m.state_dict()["mean"].flatten() for m in agent.normalizer.moments.values()] for agent in agents]
    assert torch.equal(*map(torch.cat, found))


def test_parts_of_the_vector_are_where_the_encoding_puts_them() -> None:
    observation, space = SPACE.sample(), rlsdk.environments.to_space(SPACE)
    vector, parts = encoder_of(space)(observation), encoded_slices(space)
    assert list(parts) == [f"observation[{key!r}]" for key in SPACE]
    for key in ("a", "m", "z"):
        np.testing.assert_array_equal(vector[parts[f"observation[{key!r}]"]], observation[key].ravel())
    assert max(part.stop for part in parts.values()) == len(vector)
