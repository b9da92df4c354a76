"""Profiles of training: the times of the phases add up to the total, and measuring does not change the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.tree import flatten
from rlsdk_lab.profiling import PHASES, Profile, profiled

QUICK: dict[str, tuple[str, dict[str, Any]]] = {
    "tqc": ("Pendulum-v1", {"learning_starts": 20, "batch_size": 8, "buffer_size": 500}),
    "qrdqn": ("CartPole-v1", {"learning_starts": 20, "replay_buffer_class": "prioritized", "buffer_size": 500}),
    "trpo": ("CartPole-v1", {"n_steps": 64, "normalize": True, "frame_stack": 2}),
    "ars": ("CartPole-v1", {"n_delta": 2}),
}


@pytest.mark.parametrize("algorithm", list(QUICK))
def test_measuring_changes_nothing_and_adds_up(algorithm: str, tmp_path: Path) -> None:
    env, settings = QUICK[algorithm]
    trained = []
    for measure in (False, True):
        model = rlsdk.make(algorithm, env=make_vec_env(env, 1), seed=0, **settings)
        if not measure:
            model.learn(128)
        else:
            parts, envs = model.parts, model.env
            with profiled(model) as profile:
                model.learn(128)
                model.save(tmp_path / "agent.rlsdk")  # as a checkpoint does
            assert model.parts is parts
            assert model.env is envs
            assert profile.env_steps == model.num_timesteps >= 128
            assert sum(profile.seconds.values()) == pytest.approx(profile.total)
            busy = {"environment", "update", "other"} | ({"acting"} if algorithm != "ars" else set())
            busy |= {"memory"} if algorithm in ("tqc", "qrdqn") else set()
            assert {kind for kind in PHASES if profile.seconds[kind] > 0.0} == busy
            assert all(kind in profile.table() for kind in PHASES)
        weights = [value.flatten().double() for value in flatten(model.get_parameters()["policy"]).values()]
        trained.append(torch.cat(weights))
    assert torch.equal(*trained)


def test_the_agent_is_itself_again_after_an_error() -> None:
    model = rlsdk.make("trpo", env="CartPole-v1", n_steps=8)
    parts = model.parts
    with pytest.raises(KeyboardInterrupt), profiled(model):
        raise KeyboardInterrupt
    assert model.parts is parts


@pytest.mark.parametrize(
    ("largest", "arguments", "words"),
    [
        ("environment", {}, "--vectorization async"),
        ("acting", {}, "--n-envs 8"),
        ("acting", {"n_envs": 16}, "--seeds"),
        ("update", {}, "gradient_steps"),
        ("update", {"images": True}, "--device cuda"),
        ("other", {}, "--eval-every"),
        ("memory", {}, "--seeds"),
    ],
)
def test_advice_fits_what_takes_longest(
    largest: str, arguments: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    profile = Profile()
    profile.seconds[largest], profile.total, profile.env_steps = 1.0, 1.0, 1000
    context: dict[str, Any] = {"n_envs": 1, "images": False, "device": "cpu", **arguments}
    assert words in profile.advice(context.pop("n_envs"), **context)
    profile.env_steps = 10**6
    if largest == "environment":
        assert "too fast for processes" in profile.advice(1, images=False, device="cpu")
