"""The same weights and rollouts give the same new weights as sb3-contrib's RecurrentPPO (same order of minibatches)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.environments import make_vec_env
from rlsdk.testing.rollouts import rollout_of
from rlsdk_recurrent_ppo import RecurrentPPO
from tests.peer_actor_critic import distance, same_order, transplant

sb3_contrib = pytest.importorskip("sb3_contrib")
from sb3_contrib.common.recurrent.type_aliases import RNNStates  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env as make_theirs  # noqa: E402
from stable_baselines3.common.logger import configure  # noqa: E402

ENVS, STEPS = 3, 48


def theirs_of(state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """[B, layers, H] as torch's modules order it."""
    return tuple(part.transpose(0, 1).contiguous() for part in state)


def fill(buffer: Any, rollout: Any, model: Any) -> None:
    """Our rollout in their buffer, with the states of both memories before every step."""
    steps, extras = rollout.steps, rollout.steps.extras
    actor, critic = extras.memory
    buffer.reset()
    reward = steps.reward.clone()
    finals = rollout.final_observations
    assert finals is None or not bool(steps.truncated.any())  # no time limits in so few steps
    for t in range(STEPS):
        pi = theirs_of(tuple(part[t] for part in actor))
        vf = theirs_of(tuple(part[t] for part in critic)) if critic else pi
        row = (steps.observation.features[t].numpy(), steps.action[t].numpy().reshape(ENVS, -1), reward[t].numpy())
        first = steps.observation.is_first[t].numpy()
        buffer.add(*row, first, extras.value[t], extras.log_prob[t], lstm_states=RNNStates(pi, vf))
    with torch.no_grad():
        carry = rollout.last_carry
        state = theirs_of(carry.critic or carry.actor)
        starts = rollout.last_observation.is_first.float()
        last = model.policy.predict_values(rollout.last_observation.features, state, starts)
    buffer.compute_returns_and_advantage(last.flatten(), rollout.last_observation.is_first.numpy())


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"shared_lstm": True, "enable_critic_lstm": False},
        {"enable_critic_lstm": False},
        {"n_lstm_layers": 2},
    ],
    ids=["two memories", "shared", "actor only", "two layers"],
)
def test_an_update_equals_the_peers(kwargs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    common = {"n_steps": STEPS, "batch_size": 36, "n_epochs": 2, "seed": 0, "device": "cpu", "ent_coef": 0.01}
    networks = {"lstm_hidden_size": 16, "net_arch": {"pi": [8], "vf": [8]}, **kwargs}
    theirs = sb3_contrib.RecurrentPPO(
        "MlpLstmPolicy", make_theirs("CartPole-v1", ENVS), policy_kwargs=dict(networks), **common
    )
    theirs.set_logger(configure(None, []))
    env = make_vec_env("CartPole-v1", ENVS, vectorization="sync")
    ours = RecurrentPPO("MlpLstmPolicy", env, policy_kwargs=networks, **common)
    transplant(ours.policy, theirs.policy)
    rollout = rollout_of(ours, STEPS)
    assert bool(rollout.steps.terminated.any())  # states are reset inside
    fill(theirs.rollout_buffer, rollout, theirs)
    same_order(ours, monkeypatch)
    metrics = ours.parts.algorithm.update(rollout, progress=0.0)
    theirs._update_current_progress_remaining(0, 100)
    theirs.train()
    assert distance(ours.policy, theirs.policy) < 1e-4
    for name in ("train/explained_variance", "train/entropy_loss", "train/policy_gradient_loss", "train/value_loss"):
        expected = float(theirs.logger.name_to_value[name])
        assert float(metrics[name]) == pytest.approx(expected, abs=1e-4, rel=1e-3), name
    assert np.isfinite(float(metrics["train/loss"]))
