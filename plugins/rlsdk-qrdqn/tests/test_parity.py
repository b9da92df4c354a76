"""The same weights and batches give the same losses and new weights as sb3-contrib's QRDQN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.records import Observation, Transitions
from rlsdk_qrdqn import QRDQN

sb3_contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common.logger import configure  # noqa: E402
from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: E402

ROWS = 32


def layers(ours: Any, theirs: Any) -> list[tuple[Any, Any]]:
    network = theirs.quantile_net
    return [(ours.body[0], network[0]), (ours.body[2], network[2]), (ours.head, network[4])]


def quantile_first(weight: torch.Tensor) -> torch.Tensor:
    """The last layer of sb3-contrib (all actions of each quantile) in the order of rlsdk (all quantiles of each
    action): [K * A, ..] -> [A * K, ..]."""
    return weight.view(10, 2, *weight.shape[1:]).transpose(0, 1).reshape(weight.shape)


def copy_weights(ours: Any, theirs: Any) -> None:
    with torch.no_grad():
        for i, (mine, other) in enumerate(layers(ours, theirs)):
            order = quantile_first if i == 2 else lambda weight: weight
            mine.weight.copy_(order(other.weight))
            mine.bias.copy_(order(other.bias))


def gap(ours: Any, theirs: Any) -> float:
    found = []
    for i, (mine, other) in enumerate(layers(ours, theirs)):
        order = quantile_first if i == 2 else lambda weight: weight
        found += [(mine.weight - order(other.weight)).abs().max(), (mine.bias - order(other.bias)).abs().max()]
    return float(torch.stack(found).max())


@pytest.mark.parametrize(
    "settings", [{}, {"gamma": 0.9, "learning_rate": 2e-3, "max_grad_norm": 0.5}], ids=["plain", "clipped"]
)
def test_ten_updates_equal_the_peers(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    common = {"buffer_size": 100, "seed": 0, "device": "cpu", "batch_size": ROWS, "learning_starts": 0, **settings}
    networks = {"net_arch": [16, 16], "n_quantiles": 10}
    theirs = sb3_contrib.QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs=dict(networks), **common)
    theirs.set_logger(configure(None, []))
    ours = QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs=networks, **common)
    algorithm: Any = ours.parts.algorithm
    copy_weights(ours.policy, theirs.quantile_net)
    copy_weights(algorithm.target.network, theirs.quantile_net_target)
    rng = np.random.default_rng(1)
    for step in range(10):
        seen, following = (torch.tensor(rng.normal(size=(ROWS, 4)), dtype=torch.float32) for _ in range(2))
        action, reward = (
            torch.tensor(rng.integers(2, size=ROWS)),
            torch.tensor(rng.normal(size=ROWS), dtype=torch.float32),
        )
        done = torch.tensor(rng.random(ROWS) < 0.2)
        first = torch.zeros(ROWS, dtype=torch.bool)
        mine = Transitions(
            Observation(seen, first),
            action,
            reward,
            theirs.gamma * (~done).float(),
            Observation(following, first),
            action,
        )
        samples = ReplayBufferSamples(seen, action[:, None], following, done.float()[:, None], reward[:, None], None)
        monkeypatch.setattr(theirs.replay_buffer, "sample", lambda *a, s=samples, **k: s)
        theirs.train(gradient_steps=1, batch_size=ROWS)
        metrics = algorithm.update(mine, progress=0.0)
        assert float(metrics["train/loss"]) == pytest.approx(float(theirs.logger.name_to_value["train/loss"]), rel=1e-5)
        theirs.logger.name_to_value.clear()
        if step == 4:
            algorithm.target.update(1.0)
            theirs.quantile_net_target.load_state_dict(theirs.quantile_net.state_dict())
    assert gap(ours.policy, theirs.quantile_net) < 1e-5
    assert gap(algorithm.target.network, theirs.quantile_net_target) < 1e-5
