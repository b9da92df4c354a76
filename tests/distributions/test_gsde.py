"""gSDE of on-policy algorithms compared with sb3-contrib: weights after an update, and when noise matrices are sampled."""

from __future__ import annotations

from typing import Any

import pytest

from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_trpo import TRPO
from tests.peer_actor_critic import distance, pair, same_order_of_trpo, update_both
from tests.peer_gsde import Counting, drawn_by_ours, drawn_by_theirs

sb3_contrib = pytest.importorskip("sb3_contrib")


@pytest.mark.parametrize(
    "networks",
    [{}, {"full_std": False, "log_std_init": -1.0}, {"use_expln": True}, {"squash_output": True, "log_std_init": -1.0}],
    ids=["defaults", "deviations per feature", "expln", "squashed"],
)
def test_an_update_equals_the_peers(networks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"n_steps": 60, "batch_size": 40, "n_critic_updates": 2, "cg_max_steps": 4}
    noise = {"use_sde": True, "sde_sample_freq": 8, "policy_kwargs": {"net_arch": [16], **networks}}
    ours, theirs = pair((TRPO, sb3_contrib.TRPO), Counting, 2, {**settings, **noise})
    before = [value.clone() for value in ours.policy.parameters()]
    metrics = update_both(ours, theirs, monkeypatch, order=same_order_of_trpo)
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
