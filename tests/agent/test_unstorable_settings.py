"""Arguments that agent files cannot store: the agent is saved without them, and `load` requires them by name."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.errors import ArtifactError, SettingsError
from rlsdk_ppo import PPO
from rlsdk_sac import SAC

NAME = "policy_kwargs.features_extractor_kwargs.bound"


class Bounded(torch.nn.Module):
    """A features extractor whose argument `bound` may have any type."""

    def __init__(self, space: Any, bound: object) -> None:
        super().__init__()
        self.bound, self.features_dim = bound, space.shape[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize(
    ("bound", "missing"),
    [
        (math.inf, NAME),
        ({"high": math.inf, "low": 0.0}, f"{NAME}.high"),
        ([0.0, -math.inf], NAME),
        (np.float32(2.0), NAME),
        ([np.float32(2.0)], NAME),
        ({"high": [{"inner": len}]}, f"{NAME}.high"),
        ({1: 2}, NAME),
        ({"high": {None: 2}}, f"{NAME}.high"),
        ([{1: 2}], NAME),
    ],
    ids=str,
)
def test_unstorable_arguments_are_asked_for_again(bound: Any, missing: str) -> None:
    networks = {"features_extractor_class": Bounded, "features_extractor_kwargs": {"bound": bound}}
    agent = PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, seed=0, policy_kwargs=networks)
    file = io.BytesIO()
    agent.learn(16).save(file)
    incomplete: list[dict[str, Any]] = [
        {"policy_kwargs.features_extractor_class": Bounded},
        {"policy_kwargs": {"features_extractor_class": Bounded}},
    ]
    for given in incomplete:
        file.seek(0)
        with pytest.raises(ArtifactError, match="objects that files do not store") as caught:
            PPO.load(file, custom_objects=given)
        assert f"[{missing!r}]" in str(caught.value)
    whole: list[dict[str, Any]] = [
        {"policy_kwargs.features_extractor_class": Bounded, NAME: bound},
        {"policy_kwargs": networks},
    ]
    for given in whole:
        file.seek(0)
        loaded = PPO.load(file, custom_objects=given)
        assert loaded.config.policy_kwargs.features_extractor_kwargs == {"bound": bound}


def test_infinite_arguments_of_optimizers() -> None:
    networks = {"optimizer_kwargs": {"weight_decay": math.inf}}
    file = io.BytesIO()
    PPO("MlpPolicy", "CartPole-v1", n_steps=64, policy_kwargs=networks).save(file)
    file.seek(0)
    with pytest.raises(ArtifactError, match=r"\['policy_kwargs.optimizer_kwargs.weight_decay'\]"):
        PPO.load(file)


@pytest.mark.parametrize("target", [math.nan, math.inf, -math.inf])
def test_the_target_entropy_is_finite(target: float) -> None:
    with pytest.raises(SettingsError, match=f'target_entropy = {target} must be "auto" or a finite number'):
        SAC("MlpPolicy", "Pendulum-v1", target_entropy=target)
    assert json.dumps(SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, target_entropy=-2).config.target_entropy)


@pytest.mark.parametrize(
    ("rate", "problem"),
    [
        (lambda left: 1.0 / left, "fails where 0 of the training remains: ZeroDivisionError: float division by zero"),
        (lambda left: None, "fails where 0 of the training remains: TypeError"),
        (lambda: 1e-3, "fails where 0 of the training remains: TypeError"),
        (lambda left: math.inf if left > 0.5 else 1.0, "must stay finite and not negative, but reaches inf"),
    ],
)
def test_a_schedule_that_fails_is_named(rate: Any, problem: str) -> None:
    for name in ("learning_rate", "clip_range", "clip_range_vf"):
        with pytest.raises(SettingsError) as caught:
            PPO("MlpPolicy", "CartPole-v1", **{name: rate})
        assert f"{name} {problem}" in str(caught.value)
        assert "\n" not in str(caught.value)
