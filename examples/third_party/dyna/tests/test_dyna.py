"""Tests of the model, of the memory, and of exact resumption."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rlsdk
from rlsdk.tree import flatten

SMALL = {"buffer_size": 300, "learning_starts": 50, "batch_size": 16, "planning_steps": 2, "seed": 0}


@pytest.mark.parametrize("normalize", [False, True])
def test_stopping_in_mid_episode_changes_nothing(normalize: bool, tmp_path: Path) -> None:
    constant = {"exploration_initial_eps": 0.2, "exploration_final_eps": 0.2}  # no schedule of the whole training
    settings = {**SMALL, **constant, **({"normalize": True} if normalize else {})}
    whole, first = (rlsdk.make("dyna", env="CartPole-v1", **settings) for _ in range(2))
    whole.learn(400)
    first.learn(200).save(tmp_path / "half", include=["replay_buffer"])
    second = rlsdk.load(tmp_path / "half", env="CartPole-v1", force_reset=False)
    second.learn(200, reset_num_timesteps=False)
    mine, theirs = (model.parts.algorithm for model in (whole, second))
    states = (flatten(model.policy.state_dict()) for model in (whole, second))
    assert all(map(torch.equal, *(state.values() for state in states)))
    assert all(map(torch.equal, mine.model.parameters(), theirs.model.parameters()))


def test_the_model_learns_what_an_action_leads_to() -> None:
    model = rlsdk.make("dyna", env="CartPole-v1", **{**SMALL, "buffer_size": 2000})
    algorithm, buffer = model.parts.algorithm, model.parts.buffer
    model.learn(200)
    moves = buffer.sample(200, torch.Generator().manual_seed(0))
    early = float(algorithm.model.loss(moves))
    model.learn(1500)
    moves = buffer.sample(200, torch.Generator().manual_seed(0))
    assert float(algorithm.model.loss(moves)) < 0.5 * early


def test_a_full_memory_forgets_the_oldest() -> None:
    model = rlsdk.make("dyna", env="CartPole-v1", **SMALL)
    model.learn(500)
    buffer = model.parts.buffer
    assert len(buffer) == 300
    assert buffer.bytes_required() == buffer.rows.numel() * 4
