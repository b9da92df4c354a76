"""Comparison of off-policy updates with stable-baselines3, from equal weights, batches and noise."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlsdk.records import Observation, Transitions
from rlsdk.tree import flatten
from rlsdk_interchange.sb3 import Translated

Translate = Callable[[Mapping[str, Tensor], Any], Translated]
Noise = Callable[[torch.Generator], None]


FAST = 8
"""The number of random cases that the fast suite tries."""


def some_in_the_fast_suite(count: int) -> list[Any]:
    """Return `count` seeds for `parametrize`; those from `FAST` on are marked as slow."""
    return [pytest.param(seed, marks=() if seed < FAST else pytest.mark.slow) for seed in range(count)]


def transplant(ours: Any, theirs: Any, translate: Translate) -> None:
    """Copy the peer's weights, including target networks, into our agent."""
    found = translate(theirs.policy.state_dict(), ours.context.action_space)
    ours.set_parameters(found.parameters, exact_match=False)


def distance(ours: Any, theirs: Any, translate: Translate) -> float:
    """The largest difference between our weights and the peer's, including target networks."""
    found = flatten(translate(theirs.policy.state_dict(), ours.context.action_space).parameters)
    mine = flatten(ours.get_parameters())
    assert found
    return max(float((mine[name] - value).abs().max()) for name, value in found.items())


def rounding(settings: Mapping[str, Any], updates: int) -> float:
    """How far weights may differ after some updates because of rounding.

    Adam divides by the size of the gradient. If it is nearly 0, its rounding error moves a weight by a part of the step.
    """
    return 1e-5 + 1e-3 * float(settings["learning_rate"]) * updates


def batches(rng: np.random.Generator, theirs: Any, rows: int) -> tuple[Transitions, Any]:
    """Return (a random batch for us, the same batch for the peer), for CartPole-v1 or Pendulum-v1."""
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    width = theirs.observation_space.shape[0]
    seen, following = (torch.tensor(rng.normal(size=(rows, width)), dtype=torch.float32) for _ in range(2))
    reward = torch.tensor(rng.normal(size=rows) * 3, dtype=torch.float32)
    done, first = torch.tensor(rng.random(rows) < 0.2), torch.zeros(rows, dtype=torch.bool)
    if theirs.action_space.shape:
        unit = torch.tensor(rng.uniform(-1, 1, (rows, 1)), dtype=torch.float32)
        action, stored = unit * 2.0, unit  # Pendulum's torque is in [-2, 2]
    else:
        action = torch.tensor(rng.integers(2, size=rows))
        stored = action[:, None]
    discount = theirs.gamma * (~done).float()
    ours = Transitions(
        Observation(seen, first), action, reward, discount, Observation(following, first), torch.arange(rows)
    )
    return ours, ReplayBufferSamples(seen, stored, following, done.float()[:, None], reward[:, None], None)


def updated(
    ours: Any,
    theirs: Any,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    noise: Noise | None = None,
) -> None:
    """Update both agents `count` times with the same batches; common metrics must agree to 1e-5.

    `noise` is called before each update with a copy of our generator, to give the peer the same random numbers.
    """
    from stable_baselines3.common.logger import configure

    theirs.set_logger(configure(None, []))
    rng, rows = np.random.default_rng(1), theirs.batch_size
    for step in range(count):
        mine, samples = batches(rng, theirs, rows)
        if noise is not None:
            twin = torch.Generator()
            twin.set_state(ours.streams["update"].get_state())
            noise(twin)
        monkeypatch.setattr(theirs.replay_buffer, "sample", lambda *a, s=samples, **k: s)
        theirs.train(gradient_steps=1, batch_size=rows)
        metrics = ours.parts.algorithm.update(mine, progress=0.0)
        expected = {name: value for name, value in theirs.logger.name_to_value.items() if name in metrics}
        assert any("loss" in name for name in expected)
        for name, value in expected.items():
            assert float(metrics[name]) == pytest.approx(float(value), rel=1e-5, abs=1e-5), (name, step)
        theirs.logger.name_to_value.clear()


SMALL: Mapping[str, Any] = {"buffer_size": 100, "seed": 0, "device": "cpu", "learning_starts": 0}


def random_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Random settings of all off-policy algorithms."""
    return {
        "learning_rate": float(10 ** rng.uniform(-4, -2)),
        "gamma": float(rng.uniform(0.5, 1.0)),
        "batch_size": int(rng.integers(1, 65)),
    }


def random_critics(rng: np.random.Generator) -> dict[str, Any]:
    """Random settings of off-policy algorithms for Box actions."""
    networks = {"net_arch": [8, 12], "n_critics": int(rng.integers(1, 4))}
    return {"tau": float(rng.uniform(0.001, 1.0)), "policy_kwargs": networks}


def target_noise(rows: int, monkeypatch: pytest.MonkeyPatch) -> Noise:
    """Return a function for `updated` that gives the peer the noise of our target actions, [rows, 1]."""
    drawn = list[Tensor]()

    def normal(self: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
        return self.copy_(drawn.pop() * std)

    def noise(generator: torch.Generator) -> None:
        drawn[:] = [torch.randn(rows, 1, generator=generator)]

    monkeypatch.setattr(torch.Tensor, "normal_", normal)
    return noise


def compare_updates(
    kinds: tuple[Any, Any, Translate],
    env: str,
    settings: Mapping[str, Any],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    noise: Noise | None = None,
) -> None:
    """Require equal weights after `count` updates from equal weights.

    `kinds`: our class, the peer's, and our `from_sb3`. `noise`: see `updated`.
    """
    theirs = kinds[1]("MlpPolicy", env, **SMALL, **copy.deepcopy(dict(settings)))
    ours = kinds[0]("MlpPolicy", env, **SMALL, **settings)
    transplant(ours, theirs, kinds[2])
    updated(ours, theirs, count, monkeypatch, noise=noise)
    assert distance(ours, theirs, kinds[2]) < rounding(settings, count)
