"""Comparison of actor-critic updates with stable-baselines3 and sb3-contrib, from equal weights and rollouts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.environments import make_vec_env
from rlsdk.records import Metrics
from rlsdk_testing.rollouts import rollout_of
from tests.peer_updates import rounding

Fill = Callable[[Any, Any, Any, Any], None]
Order = Callable[[Any, pytest.MonkeyPatch], None]


def _pairs(ours: Any, theirs: Any) -> list[tuple[Any, Any]]:
    """Return (our parameter, the peer's parameter) for everything that is learned."""
    head = ours.head if ours.sde is None else ours.head.head
    modules = [(head.linear, theirs.action_net), (ours.value, theirs.value_net)]
    for mine, other in (
        (ours.body, theirs.mlp_extractor.policy_net),
        (ours.critic_body, theirs.mlp_extractor.value_net),
    ):
        modules += [(mine[i], other[i]) for i in range(0, len(mine), 2)]
    if hasattr(theirs, "lstm_actor"):
        modules.append((ours.memory.cells, theirs.lstm_actor))
        if theirs.lstm_critic is not None:
            modules.append((ours.critic_memory.cells, theirs.lstm_critic))
        if theirs.critic is not None:
            modules.append((ours.critic_memory.linear, theirs.critic))
    found = [(dict(m.named_parameters())[name], value) for m, o in modules for name, value in o.named_parameters()]
    if hasattr(theirs, "log_std"):
        found.append(((ours.sde or ours.head).log_std, theirs.log_std))
    return found


def transplant(ours: Any, theirs: Any) -> None:
    """Copy the peer's weights into our network."""
    with torch.no_grad():
        for mine, other in _pairs(ours, theirs):
            mine.copy_(other)


def distance(ours: Any, theirs: Any) -> float:
    """The largest difference between our parameters and the peer's."""
    return float(torch.stack([(mine - other).abs().max() for mine, other in _pairs(ours, theirs)]).max())


def fill(buffer: Any, rollout: Any, theirs: Any, ours: Any) -> None:
    """Fill the peer's buffer with our rollout; rewards at time limits include the value of the final observation."""
    steps, before = rollout.steps, ours.stores_estimates
    ours.stores_estimates = True
    extras = ours.estimates(steps)
    ours.stores_estimates = before
    reward, finals = steps.reward.clone(), rollout.final_observations
    length, envs = reward.shape
    if finals is not None:
        with torch.no_grad():
            values = theirs.policy.predict_values(finals.observation.features).squeeze(-1)
        cut = steps.truncated[finals.time, finals.env] & ~steps.terminated[finals.time, finals.env]
        reward[finals.time, finals.env] += theirs.gamma * values * cut
    buffer.reset()
    for t in range(length):
        mask = steps.observation.action_mask
        more = {} if mask is None else {"action_masks": mask[t].numpy()}
        row = (steps.observation.features[t].numpy(), steps.action[t].numpy().reshape(envs, -1), reward[t].numpy())
        buffer.add(*row, steps.observation.is_first[t].numpy(), extras.value[t], extras.log_prob[t], **more)
    with torch.no_grad():
        last = theirs.policy.predict_values(rollout.last_observation.features)
    buffer.compute_returns_and_advantage(last, rollout.last_observation.is_first.numpy())


def same_order(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the peer shuffle minibatches in the order of our next update."""
    twin = torch.Generator()
    twin.set_state(ours.streams["update"].get_state())
    monkeypatch.setattr(np.random, "permutation", lambda count: torch.randperm(count, generator=twin).numpy())
    monkeypatch.setattr(np.random, "randint", lambda count: int(torch.randint(count, (), generator=twin)))


def same_order_of_trpo(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for TRPO. Both solvers begin at 0 here; the peer's normally begins at random numbers."""
    twin, rows = torch.Generator(), ours.config.n_steps * ours.context.num_envs
    twin.set_state(ours.streams["update"].get_state())
    epochs = range(ours.config.n_critic_updates)
    # the peer shuffles for its policy step too, where the order does not matter
    orders = [np.arange(rows), *(torch.randperm(rows, generator=twin).numpy() for _ in epochs)]
    monkeypatch.setattr(np.random, "permutation", lambda count: orders.pop(0))
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)


def pair(kinds: tuple[Any, Any], env: Any, num_envs: int, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Make (our agent, the peer's agent) with equal weights. `kinds`: our class, the peer's. `settings` may name a policy."""
    from stable_baselines3.common.env_util import make_vec_env as make_theirs
    from stable_baselines3.common.logger import configure

    given = {"policy": "MlpPolicy", "seed": 0, "device": "cpu", **settings}
    theirs = kinds[1](env=make_theirs(env, num_envs), **copy.deepcopy(given))
    theirs.set_logger(configure(None, []))
    ours = kinds[0](env=make_vec_env(env, num_envs, vectorization="sync"), **given)
    transplant(ours.policy, theirs.policy)
    return ours, theirs


def update_both(
    ours: Any, theirs: Any, monkeypatch: pytest.MonkeyPatch, *, fill: Fill = fill, order: Order = same_order
) -> Metrics:
    """Update both agents with our rollout and return our metrics."""
    rollout = rollout_of(ours, ours.config.n_steps)
    fill(theirs.rollout_buffer, rollout, theirs, ours.policy)
    order(ours, monkeypatch)
    metrics: Metrics = ours.parts.algorithm.update(rollout, progress=0.0)
    theirs._update_current_progress_remaining(0, 100)
    theirs.train()
    return metrics


def assert_same_metrics(metrics: Metrics, theirs: Any, names: Mapping[str, str], atol: float = 1e-4) -> None:
    """Require equal metrics; `names` maps our names to the peer's, without "train/"."""
    for mine, other in names.items():
        expected = float(theirs.logger.name_to_value[f"train/{other}"])
        assert float(metrics[f"train/{mine}"]) == pytest.approx(expected, abs=atol, rel=1e-3), mine


LOSSES = {name: name for name in ("explained_variance", "entropy_loss", "policy_gradient_loss", "value_loss")}


def random_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Random settings of PPO and A2C."""
    return {
        "n_steps": 40,
        "learning_rate": float(10 ** rng.uniform(-4, -2)),
        "gamma": float(rng.uniform(0.5, 1.0)),
        "gae_lambda": float(rng.uniform(0.5, 1.0)),
        "normalize_advantage": bool(rng.integers(2)),
        "ent_coef": float(rng.choice([0.0, 0.02])),
        "vf_coef": float(rng.uniform(0.1, 1.0)),
        "max_grad_norm": float(rng.choice([0.1, 0.5])),
        "policy_kwargs": {"net_arch": [int(width) for width in rng.integers(4, 20, rng.integers(1, 3))]},
    }


def compare_an_update(
    kinds: tuple[Any, Any], seed: int, settings: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[Metrics, Any]:
    """Require equal weights after one update and return (our metrics, the peer's agent).

    Even seeds use CartPole-v1, odd seeds Pendulum-v1.
    """
    env = ("CartPole-v1", "Pendulum-v1")[seed % 2]
    ours, theirs = pair(kinds, env, 2, settings)
    metrics = update_both(ours, theirs, monkeypatch)
    rows = 2 * settings["n_steps"]
    minibatches = rows * settings.get("n_epochs", 1) // settings.get("batch_size", rows) + 1
    assert distance(ours.policy, theirs.policy) < rounding(settings, minibatches)
    return metrics, theirs
