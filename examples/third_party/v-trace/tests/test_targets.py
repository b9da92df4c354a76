"""Compares V-trace targets with the sum of equation 1, term by term, and tests exact resumption."""

from __future__ import annotations

from pathlib import Path

import torch
from acme_vtrace.targets import Clips, v_trace

import rlsdk

SMALL = {"n_steps": 8, "batch_size": 4, "buffer_size": 200, "hidden": 16, "seed": 0}


def test_the_targets_are_those_of_the_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    ratio, reward, value, after = (torch.rand(6, 1, generator=generator, dtype=torch.float64) * 2 for _ in range(4))
    goes_on = torch.tensor([True, True, False, True, True, False]).view(6, 1)
    discount = torch.where(torch.tensor([False, False, True, False, False, False]).view(6, 1), 0.0, 0.9).double()
    after[:-1] = torch.where(goes_on[:-1], value[1:], after[:-1])
    found = v_trace(ratio, reward, discount, (value, after), goes_on, Clips(1.0, 0.8))
    for first in range(6):
        total, weight = value[first].clone(), torch.ones(1, dtype=torch.float64)
        for t in range(first, 6):
            rho = ratio[t].clamp(max=1.0)
            total += weight * rho * (reward[t] + discount[t] * after[t] - value[t])
            weight = weight * discount[t] * ratio[t].clamp(max=0.8) * goes_on[t]
        torch.testing.assert_close(found.value[first], total)
    following = torch.where(goes_on, found.value.roll(-1, 0), after)
    torch.testing.assert_close(found.advantage, ratio.clamp(max=1.0) * (reward + discount * following - value))


def test_stopping_in_mid_episode_changes_nothing(tmp_path: Path) -> None:
    whole, first = (rlsdk.make("v-trace", env="CartPole-v1", **SMALL) for _ in range(2))
    whole.learn(320)
    first.learn(160).save(tmp_path / "half", include=["replay_buffer"])
    second = rlsdk.load(tmp_path / "half", env="CartPole-v1", force_reset=False)
    second.learn(160, reset_num_timesteps=False)
    assert all(map(torch.equal, whole.policy.parameters(), second.policy.parameters()))
