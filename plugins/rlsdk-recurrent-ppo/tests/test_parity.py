"""The same weights and rollouts give the same new weights as sb3-contrib's RecurrentPPO (same order of minibatches)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.networks.action_heads import StateDependentNoise
from rlsdk_recurrent_ppo import RecurrentPPO
from tests.peer_actor_critic import LOSSES, assert_same_metrics, distance, pair, update_both
from tests.peer_gsde import Counting

sb3_contrib = pytest.importorskip("sb3_contrib")
from sb3_contrib.common.recurrent.type_aliases import RNNStates  # noqa: E402

ENVS, STEPS = 3, 48


def theirs_of(state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The recurrent state [B, layers, H] in the order of torch's modules, [layers, B, H]."""
    return tuple(part.transpose(0, 1).contiguous() for part in state)


def fill(buffer: Any, rollout: Any, theirs: Any, ours: Any) -> None:
    """Copy a rollout of rlsdk into the buffer of sb3-contrib, with the recurrent states of actor and critic before
    every step."""
    steps, extras = rollout.steps, rollout.steps.extras
    actor, critic = extras.memory
    buffer.reset()
    reward = steps.reward.clone()
    finals = rollout.final_observations
    assert bool(steps.terminated.any())  # an episode ends in the rollout, so states are reset
    assert finals is None or not bool(steps.truncated.any())  # the rollout is too short for a time limit
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
        last = theirs.policy.predict_values(rollout.last_observation.features, state, starts)
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
    common = {"n_steps": STEPS, "batch_size": 36, "n_epochs": 2, "ent_coef": 0.01, "policy": "MlpLstmPolicy"}
    networks = {"lstm_hidden_size": 16, "net_arch": {"pi": [8], "vf": [8]}, **kwargs}
    kinds = (RecurrentPPO, sb3_contrib.RecurrentPPO)
    ours, theirs = pair(kinds, "CartPole-v1", ENVS, {**common, "policy_kwargs": networks})
    metrics = update_both(ours, theirs, monkeypatch, fill=fill)
    assert distance(ours.policy, theirs.policy) < 1e-4
    assert_same_metrics(metrics, theirs, LOSSES)
    assert np.isfinite(float(metrics["train/loss"]))


class Rewarding(Counting):
    """Episodes of seven steps that terminate, with rewards that depend on the actions."""

    def step(self, action: Any) -> Any:
        observation, _, _, over, info = super().step(action)
        return observation, float(1.0 - np.square(action - observation).sum()), over, False, info


EVERY = 8
"""The number of steps after which a new exploration matrix is sampled."""


def replay(rollout: Any, model: Any, drawn: list[torch.Tensor]) -> None:
    """Let the model of sb3-contrib act on our observations with our exploration matrices, and check that actions,
    values and log-probabilities are the same."""
    steps, extras = rollout.steps, rollout.steps.extras
    assert len(drawn) == STEPS // EVERY
    zeros = torch.zeros(1, ENVS, model.policy.lstm_actor.hidden_size)
    states = RNNStates((zeros, zeros), (zeros, zeros))
    for t in range(STEPS):
        model.policy.action_dist.exploration_matrices = drawn[t // EVERY]
        starts = steps.observation.is_first[t].float()
        with torch.no_grad():
            action, value, log_prob, states = model.policy(steps.observation.features[t], states, starts)
        near: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-5}
        torch.testing.assert_close(steps.action[t], action, **near)
        torch.testing.assert_close(extras.value[t], value.flatten(), **near)
        torch.testing.assert_close(extras.log_prob[t], log_prob, **near)


@pytest.mark.parametrize(
    "networks",
    [
        {},
        {"shared_lstm": True, "enable_critic_lstm": False, "full_std": False, "log_std_init": -1.0},
        {"enable_critic_lstm": False, "use_expln": True, "log_std_init": 0.5},
        {"squash_output": True, "log_std_init": -1.0},
    ],
    ids=["two memories", "shared, deviations per feature", "actor only, expln", "squashed"],
)
def test_an_update_with_gsde_equals_the_peers(networks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # the entropy of squashed actions is an integral in rlsdk, and an estimate from samples in sb3-contrib
    entropy = 0.0 if "squash_output" in networks else 0.01
    common: dict[str, Any] = {"n_steps": STEPS, "batch_size": ENVS * STEPS, "n_epochs": 1, "policy": "MlpLstmPolicy"}
    common |= {"use_sde": True, "sde_sample_freq": EVERY, "ent_coef": entropy, "learning_rate": 3e-3}
    common |= {"policy_kwargs": {"lstm_hidden_size": 8, "net_arch": {"pi": [8], "vf": [8]}, **networks}}
    ours, theirs = pair((RecurrentPPO, sb3_contrib.RecurrentPPO), Rewarding, ENVS, common)
    drawn, draw = list[torch.Tensor](), StateDependentNoise.matrices
    monkeypatch.setattr(StateDependentNoise, "matrices", lambda *given: (drawn.append(draw(*given)), drawn[-1])[1])

    def replay_and_fill(buffer: Any, rollout: Any, theirs: Any, ours: Any) -> None:
        replay(rollout, theirs, drawn)
        fill(buffer, rollout, theirs, ours)

    before = [value.detach().clone() for value in ours.policy.parameters()]
    metrics = update_both(ours, theirs, monkeypatch, fill=replay_and_fill)
    moved = [float((a - b).abs().max()) for a, b in zip(before, ours.policy.parameters(), strict=True)]
    assert min(moved) > 1e-3
    assert distance(ours.policy, theirs.policy) < 1e-5
    for name in ("train/policy_gradient_loss", "train/value_loss"):
        assert float(metrics[name]) == pytest.approx(float(theirs.logger.name_to_value[name]), abs=1e-5), name
    used = theirs.policy.action_dist.get_std(theirs.policy.log_std).mean()
    assert float(metrics["train/std"]) == pytest.approx(float(used), abs=1e-5)
    assert (float(metrics["train/std"]) != pytest.approx(float(theirs.logger.name_to_value["train/std"]), abs=0.1)) == (
        "use_expln" in networks
    )
