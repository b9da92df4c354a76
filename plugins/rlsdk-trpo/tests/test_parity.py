"""The same weights and rollouts give the same new weights as sb3-contrib's TRPO (same order of minibatches).

The number of conjugate-gradient steps is small: once the residual is 0, further directions are rounding errors in both
libraries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlsdk_envs.toy import AnySpaceEnv
from rlsdk_trpo import TRPO
from tests.peer_actor_critic import assert_same_metrics, distance, pair, same_order_of_trpo, update_both

sb3_contrib = pytest.importorskip("sb3_contrib")

ENVS, STEPS = 2, 120
OBSERVED = spaces.Box(-1.0, 1.0, (5,), np.float32)
ACTIONS = {
    "Box": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(4),
}


class Unmasked(AnySpaceEnv):
    action_masks = None  # type: ignore[assignment]  # the peer's TRPO knows none


def source(name: str) -> Any:
    """The id of an environment, or a function that makes one with several action dimensions."""
    return (lambda: Unmasked(OBSERVED, ACTIONS[name])) if name in ACTIONS else name


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", *ACTIONS])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cg_max_steps": 3, "cg_damping": 0.01, "target_kl": 0.05, "gamma": 0.9, "gae_lambda": 0.8},
        {"normalize_advantage": False, "line_search_shrinking_factor": 0.5, "learning_rate": 1e-2},
    ],
    ids=["defaults", "other solver", "raw advantages"],
)
def test_an_update_equals_the_peers(env: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    common = {"n_steps": STEPS, "batch_size": 64, "n_critic_updates": 3, **settings}
    ours, theirs = pair((TRPO, sb3_contrib.TRPO), source(env), ENVS, common)
    metrics = update_both(ours, theirs, monkeypatch, order=same_order_of_trpo)
    assert distance(ours.policy, theirs.policy) < 1e-4
    names = {"objective": "policy_objective", "kl_divergence_loss": "kl_divergence_loss", "value_loss": "value_loss"}
    assert_same_metrics(metrics, theirs, names)
    assert bool(metrics["train/is_line_search_success"]) == bool(
        theirs.logger.name_to_value["train/is_line_search_success"]
    )
