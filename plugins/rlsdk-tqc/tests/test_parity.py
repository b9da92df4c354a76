"""The same weights, batch and noise give the same losses and new weights as sb3-contrib's TQC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.records import Observation, Transitions
from rlsdk_tqc import TQC

sb3_contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common.logger import configure  # noqa: E402
from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: E402

ROWS = 64


def transplant(ours: TQC, theirs: Any) -> None:
    """Copy the weights of sb3-contrib into our networks; linear layers of critics are stacked and transposed."""
    actor = ours.policy
    with torch.no_grad():
        for i in (0, 2):
            actor.body[i].weight.copy_(theirs.actor.latent_pi[i].weight)
            actor.body[i].bias.copy_(theirs.actor.latent_pi[i].bias)
        for name, layer in (("mean", theirs.actor.mu), ("log_std", theirs.actor.log_std)):
            getattr(actor, name).weight.copy_(layer.weight)
            getattr(actor, name).bias.copy_(layer.bias)
        algorithm: Any = ours.parts.algorithm
        for mine, critic in (
            (algorithm.critics, theirs.critic),
            (algorithm.trained.target.network, theirs.critic_target),
        ):
            for i in (0, 2, 4):
                mine.ensemble.layers[i].weight.copy_(torch.stack([net[i].weight.T for net in critic.q_networks]))
                mine.ensemble.layers[i].bias.copy_(torch.stack([net[i].bias[None] for net in critic.q_networks]))


def assert_equal(ours: TQC, theirs: Any) -> None:
    actor, algorithm = ours.policy, ours.parts.algorithm
    near = {"atol": 1e-5, "rtol": 0.0}
    for i in (0, 2):
        torch.testing.assert_close(actor.body[i].weight.data, theirs.actor.latent_pi[i].weight.data, **near)
    torch.testing.assert_close(actor.mean.weight.data, theirs.actor.mu.weight.data, **near)
    torch.testing.assert_close(actor.log_std.weight.data, theirs.actor.log_std.weight.data, **near)
    pairs = ((algorithm.critics, theirs.critic), (algorithm.trained.target.network, theirs.critic_target))
    for mine, critic in pairs:
        for i in (0, 2, 4):
            stacked = torch.stack([net[i].weight.T for net in critic.q_networks])
            torch.testing.assert_close(mine.ensemble.layers[i].weight.data, stacked.data, **near)


def batches(rng: np.random.Generator, theirs: Any) -> tuple[Transitions, ReplayBufferSamples]:
    unit = torch.tensor(rng.uniform(-1, 1, (ROWS, 1)), dtype=torch.float32)
    seen, following = (torch.tensor(rng.normal(size=(ROWS, 3)), dtype=torch.float32) for _ in range(2))
    reward = torch.tensor(rng.normal(size=ROWS) * 3, dtype=torch.float32)
    done = torch.tensor(rng.random(ROWS) < 0.2)
    first = torch.zeros(ROWS, dtype=torch.bool)
    ours = Transitions(
        Observation(seen, first),
        unit * 2.0,  # Pendulum's torque is in [-2, 2]
        reward,
        theirs.gamma * (~done).float(),
        Observation(following, first),
        torch.arange(ROWS),
    )
    return ours, ReplayBufferSamples(seen, unit, following, done.float()[:, None], reward[:, None], None)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="defaults"),
        pytest.param(
            {"ent_coef": 0.2, "top_quantiles_to_drop_per_net": 0},
            id="fixed entropy, nothing dropped",
            marks=pytest.mark.slow,
        ),
        pytest.param({"learning_rate": 3e-3, "tau": 0.1, "gamma": 0.9}, id="other rates"),
    ],
)
def test_ten_updates_equal_the_peers(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    small: dict[str, Any] = {"buffer_size": 100, "seed": 0, "device": "cpu", "batch_size": ROWS}
    widths = {"net_arch": [32, 32]}
    theirs = sb3_contrib.TQC("MlpPolicy", "Pendulum-v1", policy_kwargs=dict(widths), **small, **settings)
    theirs.set_logger(configure(None, []))
    ours = TQC("MlpPolicy", "Pendulum-v1", policy_kwargs=widths, **small, **settings)
    transplant(ours, theirs)
    rng, noise = np.random.default_rng(1), list[torch.Tensor]()
    monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda *a, **k: noise.pop(0))
    generator = ours.streams["update"]
    for _ in range(10):
        mine, samples = batches(rng, theirs)
        twin = torch.Generator()
        twin.set_state(generator.get_state())
        noise[:] = list(torch.randn(2, ROWS, 1, generator=twin))
        monkeypatch.setattr(theirs.replay_buffer, "sample", lambda *a, s=samples, **k: s)
        theirs.train(gradient_steps=1, batch_size=ROWS)
        metrics = ours.parts.algorithm.update(mine, progress=0.0)
        for name in ("train/critic_loss", "train/actor_loss", "train/ent_coef"):
            expected = theirs.logger.name_to_value[name]
            assert float(metrics[name]) == pytest.approx(float(expected), rel=1e-5, abs=1e-5), name
        theirs.logger.name_to_value.clear()
    assert_equal(ours, theirs)
