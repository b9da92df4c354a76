"""MaskablePPO learns, does so because of masks, and never takes a forbidden action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlsdk.evaluation.evaluate import run_episodes
from rlsdk_envs.toy import InvalidActionEnvDiscrete, InvalidActionEnvMultiBinary, InvalidActionEnvMultiDiscrete
from rlsdk_maskable_ppo import MaskablePPO


def score(seed: int, masks: bool) -> float:
    env = InvalidActionEnvDiscrete(80, 60)
    model = MaskablePPO("MlpPolicy", env, gamma=0.4, seed=seed, use_masking=masks).learn(5000)
    return run_episodes(model, InvalidActionEnvDiscrete(80, 60), 20, seed=seed).mean


@pytest.mark.slow
def test_the_documented_example_over_seeds() -> None:
    masked, plain = ([score(seed, masks) for seed in (32, 33, 34, 35, 36)] for masks in (True, False))
    assert np.mean(masked) >= 85.0
    assert np.mean(masked) >= np.mean(plain) + 40.0


@pytest.mark.full
@pytest.mark.parametrize("kind", [InvalidActionEnvMultiDiscrete, InvalidActionEnvMultiBinary])
def test_other_spaces_are_learned(kind: Any) -> None:
    size = {"dim": 4, "n_invalid_actions": 2}
    model = MaskablePPO("MlpPolicy", kind(**size), gamma=0.4, n_steps=512, learning_rate=3e-3, seed=0).learn(4096)
    result = run_episodes(model, kind(**size), 5, seed=1)
    assert result.mean > 90.0  # of at most 100


@pytest.mark.slow
def test_a_hundred_thousand_steps_without_a_forbidden_action() -> None:
    class Strict(InvalidActionEnvDiscrete):
        def step(self, action: Any) -> Any:
            assert self.action_masks()[action]
            return super().step(action)

    MaskablePPO("MlpPolicy", Strict(40, 39), seed=0).learn(100_000)
