"""Tests of the novelty, of intrinsic returns, and of exact resumption."""

from __future__ import annotations

from pathlib import Path

import torch
from acme_rnd.corridor import Corridor

import rlsdk

SMALL = {"n_steps": 128, "batch_size": 32, "n_epochs": 2, "hidden": 16, "seed": 0}


def flat(model: rlsdk.Agent) -> list[torch.Tensor]:
    algorithm = model.parts.algorithm
    return [*model.policy.parameters(), *algorithm.novelty.state_dict().values(), algorithm.return_square]


def test_stopping_in_mid_episode_changes_nothing(tmp_path: Path) -> None:
    whole, first = (rlsdk.make("rnd", env=Corridor(), **SMALL) for _ in range(2))
    whole.learn(512)
    first.learn(256).save(tmp_path / "half")
    second = rlsdk.load(tmp_path / "half", env=Corridor(), force_reset=False).learn(256, reset_num_timesteps=False)
    assert all(map(torch.equal, flat(whole), flat(second)))


def test_what_is_seen_often_becomes_dull() -> None:
    model = rlsdk.make("rnd", env=Corridor(), **SMALL)
    near, far = torch.eye(30)[:1], torch.eye(30)[-1:]
    model.learn(2_000)
    novelty = model.parts.algorithm.novelty
    with torch.no_grad():
        assert novelty(near) < 0.2 * novelty(far)


def test_episodes_do_not_end_the_intrinsic_return() -> None:
    model = rlsdk.make("rnd", env=Corridor(4), **SMALL)
    algorithm = model.parts.algorithm
    bonus = torch.ones(6, 1)
    before = algorithm.return_square.clone()
    algorithm.return_scale(bonus)
    gamma = model.config.intrinsic_gamma
    returns = torch.tensor([sum(gamma**k for k in range(6 - t)) for t in range(6)])
    torch.testing.assert_close(algorithm.return_square, before + 0.1 * (returns.square().mean() - before))
