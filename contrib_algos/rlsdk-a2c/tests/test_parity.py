"""The same weights and rollouts give the same losses and new weights as stable-baselines3's A2C."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from rlsdk.environments import make_vec_env
from rlsdk.testing.rollouts import rollout_of
from rlsdk_a2c import A2C
from tests.peer_actor_critic import distance, fill, same_order, transplant
from tests.peer_updates import rounding, some_in_the_fast_suite

stable_baselines3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.env_util import make_vec_env as make_theirs  # noqa: E402
from stable_baselines3.common.logger import configure  # noqa: E402

ENVS, STEPS = 2, 40


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_an_update_equals_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    env = rng.choice(["CartPole-v1", "Pendulum-v1"]).item()
    settings: dict[str, Any] = {
        "n_steps": STEPS,
        "learning_rate": float(10 ** rng.uniform(-4, -2)),
        "gamma": float(rng.uniform(0.5, 1.0)),
        "gae_lambda": float(rng.uniform(0.5, 1.0)),
        "normalize_advantage": bool(rng.integers(2)),
        "ent_coef": float(rng.choice([0.0, 0.02])),
        "vf_coef": float(rng.uniform(0.1, 1.0)),
        "max_grad_norm": float(rng.choice([0.1, 0.5])),
        "use_rms_prop": bool(rng.integers(2)),
        "rms_prop_eps": float(10 ** rng.uniform(-6, -3)),
        "policy_kwargs": {"net_arch": [int(width) for width in rng.integers(4, 20, rng.integers(1, 3))]},
    }
    common = {"seed": 0, "device": "cpu"}
    theirs = stable_baselines3.A2C("MlpPolicy", make_theirs(env, ENVS), **common, **copy.deepcopy(settings))
    theirs.set_logger(configure(None, []))
    ours = A2C("MlpPolicy", make_vec_env(env, ENVS, vectorization="sync"), **common, **settings)
    transplant(ours.policy, theirs.policy)
    rollout = rollout_of(ours, STEPS)
    fill(theirs.rollout_buffer, rollout, theirs, ours.policy)
    same_order(ours, monkeypatch)
    metrics = ours.parts.algorithm.update(rollout, progress=0.0)
    theirs._update_current_progress_remaining(0, 100)
    theirs.train()
    count = STEPS * ENVS * settings.get("n_epochs", 1) // settings.get("batch_size", STEPS * ENVS) + 1
    assert distance(ours.policy, theirs.policy) < rounding(settings, count)
    stopped = settings.get("target_kl") is not None  # the peer leaves the stopping minibatch out of some means
    for name in ("explained_variance", "entropy_loss", "policy_loss", "value_loss"):
        expected = float(theirs.logger.name_to_value[f"train/{name}"])
        assert float(metrics[f"train/{name}"]) == pytest.approx(expected, abs=0.05 if stopped else 1e-4, rel=1e-3), name
