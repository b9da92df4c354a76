"""gSDE on-policy beside sb3-contrib: weights after an update, and when noise matrices are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.environments import make_vec_env
from rlsdk.testing.rollouts import rollout_of
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_trpo import TRPO
from tests.peer_actor_critic import distance, fill, transplant
from tests.peer_gsde import Counting, drawn_by_ours, drawn_by_theirs

sb3_contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common.env_util import make_vec_env as make_theirs  # noqa: E402
from stable_baselines3.common.logger import configure  # noqa: E402

ENVS, STEPS = 2, 60


@pytest.mark.parametrize(
    "networks",
    [{}, {"full_std": False, "log_std_init": -1.0}, {"use_expln": True}, {"squash_output": True, "log_std_init": -1.0}],
    ids=["defaults", "deviations per feature", "expln", "squashed"],
)
def test_an_update_equals_the_peers(networks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    common: dict[str, Any] = {"n_steps": STEPS, "batch_size": 40, "n_critic_updates": 2, "seed": 0, "device": "cpu"}
    common |= {
        "use_sde": True,
        "sde_sample_freq": 8,
        "cg_max_steps": 4,
        "policy_kwargs": {"net_arch": [16], **networks},
    }
    theirs = sb3_contrib.TRPO("MlpPolicy", make_theirs(Counting, ENVS), **common)
    theirs.set_logger(configure(None, []))
    ours = TRPO("MlpPolicy", make_vec_env(Counting, ENVS, vectorization="sync"), **common)
    transplant(ours.policy, theirs.policy)
    rollout = rollout_of(ours, STEPS)
    fill(theirs.rollout_buffer, rollout, theirs, ours.policy)
    twin = torch.Generator()
    twin.set_state(ours.streams["update"].get_state())
    rows = ENVS * STEPS
    orders = [np.arange(rows), *(torch.randperm(rows, generator=twin).numpy() for _ in range(2))]
    monkeypatch.setattr(np.random, "permutation", lambda count: orders.pop(0))
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)  # the peer's solver starts from noise, ours from 0
    before = [value.clone() for value in ours.policy.parameters()]
    metrics = ours.parts.algorithm.update(rollout, progress=0.0)
    theirs._update_current_progress_remaining(0, 100)
    theirs.train()
    moved = max(float((a - b).abs().max()) for a, b in zip(before, ours.policy.parameters(), strict=True))
    assert moved > 1e-3
    assert distance(ours.policy, theirs.policy) < 0.02 * moved
    expected = float(theirs.logger.name_to_value["train/kl_divergence_loss"])
    assert float(metrics["train/kl_divergence_loss"]) == pytest.approx(expected, rel=1e-2, abs=1e-5)


@pytest.mark.parametrize("settings", [{"sde_sample_freq": 4}, {}, {"sde_sample_freq": 5}], ids=["4", "rollouts", "5"])
@pytest.mark.parametrize("recurrent", [False, True])
def test_matrices_are_drawn_when_the_peers_are(
    settings: dict[str, Any], recurrent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = {"use_sde": True, "n_steps": 10, "batch_size": 10, "seed": 0, "device": "cpu", **settings}
    one, other, policy = (
        (RecurrentPPO, sb3_contrib.RecurrentPPO, "MlpLstmPolicy")
        if recurrent
        else (TRPO, sb3_contrib.TRPO, "MlpPolicy")
    )
    mine = drawn_by_ours(one(policy, Counting(), **common), 30, monkeypatch)
    theirs = other(policy, Counting(), **common)
    assert mine == drawn_by_theirs(theirs, theirs.policy, 30, monkeypatch)
    assert set(mine) >= {0, 10, 20}
    assert 7 not in mine, "episodes of seven steps change nothing"
