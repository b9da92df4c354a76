"""The same weights and rollouts give the same new weights as sb3-contrib's TRPO (same order of minibatches).

With few conjugate-gradient steps, that is: once the residual is gone, further directions are rounding errors on both sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import make_vec_env
from rlsdk.environments.toy import AnySpaceEnv
from rlsdk.testing.rollouts import rollout_of
from rlsdk_trpo import TRPO
from tests.peer_actor_critic import distance, fill, transplant

sb3_contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common.env_util import make_vec_env as make_theirs  # noqa: E402
from stable_baselines3.common.logger import configure  # noqa: E402

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
    """An id, or what makes an environment with several action dimensions."""
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
    common = {"n_steps": STEPS, "batch_size": 64, "n_critic_updates": 3, "seed": 0, "device": "cpu", **settings}
    theirs = sb3_contrib.TRPO("MlpPolicy", make_theirs(source(env), ENVS), **common)
    theirs.set_logger(configure(None, []))
    ours = TRPO("MlpPolicy", make_vec_env(source(env), ENVS, vectorization="sync"), **common)
    transplant(ours.policy, theirs.policy)
    rollout = rollout_of(ours, STEPS)
    fill(theirs.rollout_buffer, rollout, theirs, ours.policy)
    twin = torch.Generator()
    twin.set_state(ours.streams["update"].get_state())
    rows = ENVS * STEPS
    # the peer shuffles for its policy step too, where the order does not matter
    orders = [np.arange(rows), *(torch.randperm(rows, generator=twin).numpy() for _ in range(3))]
    monkeypatch.setattr(np.random, "permutation", lambda count: orders.pop(0))
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)  # the peer's solver starts from noise, ours from 0
    metrics = ours.parts.algorithm.update(rollout, progress=0.0)
    theirs._update_current_progress_remaining(0, 100)
    theirs.train()
    assert distance(ours.policy, theirs.policy) < 1e-4
    names = {"objective": "policy_objective", "kl_divergence_loss": "kl_divergence_loss", "value_loss": "value_loss"}
    for mine, other in names.items():
        expected = float(theirs.logger.name_to_value[f"train/{other}"])
        assert float(metrics[f"train/{mine}"]) == pytest.approx(expected, abs=1e-4, rel=1e-3), mine
    assert bool(metrics["train/is_line_search_success"]) == bool(
        theirs.logger.name_to_value["train/is_line_search_success"]
    )
