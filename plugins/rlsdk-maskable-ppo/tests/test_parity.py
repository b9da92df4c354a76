"""The same weights and rollouts give the same new weights as sb3-contrib's MaskablePPO (same order of minibatches)."""

from __future__ import annotations

from typing import Any

import pytest

from rlsdk_envs.toy import InvalidActionEnvDiscrete, InvalidActionEnvMultiDiscrete
from rlsdk_maskable_ppo import MaskablePPO
from tests.peer_actor_critic import LOSSES, assert_same_metrics, distance, pair, update_both

sb3_contrib = pytest.importorskip("sb3_contrib")


@pytest.mark.parametrize("kind", [InvalidActionEnvDiscrete, InvalidActionEnvMultiDiscrete])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ent_coef": 0.02, "clip_range_vf": 0.1, "normalize_advantage": False, "gamma": 0.5, "gae_lambda": 0.8},
        {"target_kl": 1e-3, "learning_rate": 3e-3, "max_grad_norm": 0.1},
    ],
    ids=["defaults", "every term", "early stop"],
)
def test_an_update_equals_the_peers(kind: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    common = {"n_steps": 40, "batch_size": 32, "n_epochs": 3, **settings}
    ours, theirs = pair((MaskablePPO, sb3_contrib.MaskablePPO), lambda: kind(6, 3, 7), 3, common)
    metrics = update_both(ours, theirs, monkeypatch)
    assert distance(ours.policy, theirs.policy) < 1e-4
    # sb3-contrib leaves the minibatch at which target_kl stops out of some means
    assert_same_metrics(metrics, theirs, LOSSES, atol=0.05 if "target_kl" in settings else 1e-4)
    assert ours.parts.algorithm.updates == theirs._n_updates
