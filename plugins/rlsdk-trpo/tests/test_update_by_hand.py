"""The parts of TRPO's update compared with closed forms, and the cases in which the policy must not change."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.math import flat_grad
from rlsdk.tree import map_tensors
from rlsdk_envs.toy import AnySpaceEnv, IdentityEnv
from rlsdk_testing.rollouts import rollout_of
from rlsdk_trpo import TRPO
from rlsdk_trpo.algorithm import conjugate_gradient
from rlsdk_trpo.loss import longest_step, surrogate


def agent(**settings: Any) -> TRPO:
    env = make_vec_env("CartPole-v1", 2, vectorization="sync")
    return TRPO("MlpPolicy", env, seed=0, **{"n_steps": 64, "policy_kwargs": {"net_arch": [8]}, **settings})


def seen(rollout: Any) -> tuple[Any, Any, Any]:
    """The observations, recurrent states and episode starts [N, ..] that the network evaluates."""
    steps = rollout.steps
    parts = (steps.observation, steps.extras.memory, steps.observation.is_first)
    return map_tensors(lambda leaf: leaf.transpose(0, 1).flatten(0, 1), parts)


def weights(model: TRPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.policy.actor_parameters])


def test_the_bound_is_per_dimension_or_of_the_whole_action() -> None:
    made = make_vec_env(lambda: AnySpaceEnv(spaces.Box(-1, 1, (5,)), spaces.Box(-1, 1, (4,))), 2, vectorization="sync")
    moved = {}
    for each in (True, False):
        model = TRPO("MlpPolicy", made, n_steps=256, seed=0, kl_per_dimension=each)
        rollout = rollout_of(model, 256)
        with torch.no_grad():
            before = deepcopy(model.policy.evaluate(*seen(rollout))[0])
        metrics = model.parts.algorithm.update(rollout, progress=0.0)
        kl = float(model.policy.evaluate(*seen(rollout))[0].kl_divergence(before).mean().detach())
        assert float(metrics["train/kl_divergence_loss"]) == pytest.approx(kl / (4 if each else 1), rel=1e-4)
        moved[each] = kl
    assert moved[False] <= 0.01 < moved[True] <= 0.04


def test_conjugate_gradient_solves_and_stops() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, generator=generator, dtype=torch.float64)
    matrix = root @ root.T + torch.eye(12, dtype=torch.float64)
    b = torch.randn(12, generator=generator, dtype=torch.float64)
    calls = []

    def product(v: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return matrix @ v

    exact = torch.linalg.solve(matrix, b)
    assert torch.allclose(conjugate_gradient(product, b, max_iter=50, residual_tol=1e-20), exact, atol=1e-9)
    assert len(calls) <= 20
    calls.clear()
    conjugate_gradient(product, b, max_iter=3)
    assert len(calls) == 3
    assert torch.equal(conjugate_gradient(product, b * 0), b * 0)
    assert bool(conjugate_gradient(lambda v: -v, b).isfinite().all())
    assert bool(conjugate_gradient(lambda v: v * float("nan"), b).isfinite().all())


def test_flat_gradients() -> None:
    one, two, unused = (nn.Parameter(torch.tensor(v)) for v in ([1.0, 2.0], [[3.0]], [4.0]))
    found = flat_grad((one.square().sum() + 5 * two.sum()), [one, two, unused])
    assert found.tolist() == [2.0, 4.0, 5.0, 0.0]
    first = flat_grad(one.pow(3).sum(), [one], create_graph=True)
    assert flat_grad(first.sum(), [one]).tolist() == [6.0, 12.0]


def test_the_fisher_matrix_of_a_softmax() -> None:
    """The Hessian of KL(p_theta || p_0) at theta = 0 is diag(p) - p p^T."""
    logits = nn.Parameter(torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64))
    p = logits.detach().softmax(0)
    kl = (logits.softmax(0) * (logits.log_softmax(0) - logits.detach().log_softmax(0))).sum()
    gradient = flat_grad(kl, [logits], create_graph=True)
    from rlsdk_trpo.algorithm import hessian_vector_product

    fisher = torch.diag(p) - torch.outer(p, p)
    for v in torch.eye(3, dtype=torch.float64):
        found = hessian_vector_product([logits], gradient, v, damping=0.1)
        assert torch.allclose(found, fisher @ v + 0.1 * v, atol=1e-12)


def test_objective_and_length_of_the_step() -> None:
    now, old = torch.tensor([0.5, 0.2]).log(), torch.tensor([0.25, 0.4]).log()
    assert float(surrogate(now, old, torch.tensor([1.0, 3.0]))) == pytest.approx((2.0 * 1 + 0.5 * 3) / 2)
    assert float(longest_step(0.01, torch.tensor(0.5))) == pytest.approx((2 * 0.01 / 0.5) ** 0.5)


def test_a_step_improves_within_the_bound_and_leaves_the_critic_to_its_own_loss() -> None:
    model = agent(target_kl=0.02)
    before = weights(model)
    metrics = model.parts.algorithm.update(rollout_of(model, 64), progress=0.0)
    assert float(metrics["train/is_line_search_success"]) == 1.0
    assert 0.0 < float(metrics["train/kl_divergence_loss"]) < 0.02
    assert float(metrics["train/objective"]) > 0.0
    assert not torch.equal(before, weights(model))


def test_the_bound_may_be_a_schedule() -> None:
    """To second order, a step has the KL divergence that the bound allows: half of it when half of the bound is left."""
    bounds = []
    for progress in (0.0, 0.5, 1.0):
        model = agent(target_kl="lin_1e-4")
        metrics = model.parts.algorithm.update(rollout_of(model, 64), progress=progress)
        bounds.append(float(metrics["train/kl_divergence_loss"]))
    assert 0.0 < bounds[0] < 1e-4
    assert bounds[1] == pytest.approx(bounds[0] / 2, rel=0.1)
    assert bounds[2] == 0.0
    with pytest.raises(SettingsError, match="target_kl"):
        agent(target_kl=0.0)


@pytest.mark.parametrize("how", ["no advantage", "NaN advantage", "no length accepted"])
def test_a_step_that_cannot_be_made_leaves_the_policy_alone(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"normalize_advantage": False, "gamma": 0.0, "gae_lambda": 0.0}
    model = agent(**(settings if how != "no length accepted" else {"target_kl": 1e-12, "line_search_max_iter": 2}))
    rollout = rollout_of(model, 64)
    if how != "no length accepted":
        value = float("nan") if how == "NaN advantage" else 0.0
        rollout.steps.reward.copy_(model.policy.estimates(rollout.steps).value + value)
    before = weights(model)
    if how == "no length accepted":
        monkeypatch.setattr("rlsdk_trpo.algorithm.longest_step", lambda target, curvature: curvature * 0 + 1e3)
    bound = model.config.target_kl(1.0)
    metrics = model.parts.algorithm._policy_step(_rows(model, rollout), bound)  # type: ignore[attr-defined]
    assert torch.equal(before, weights(model))
    assert float(metrics["train/is_line_search_success"]) == 0.0


def _rows(model: TRPO, rollout: Any) -> Any:
    from rlsdk.updates.minibatches import policy_batch

    return policy_batch(rollout, model.policy, gamma=model.config.gamma, lam=model.config.gae_lambda)


def test_critic_updates_never_reach_the_actor() -> None:
    from rlsdk_envs.toy import FakeImageEnv

    kwargs = {"net_arch": [8], "features_extractor_kwargs": {"features_dim": 16}}
    env = FakeImageEnv(action_space=IdentityEnv(3).action_space)
    # actor and critic share an encoder
    model = TRPO("CnnPolicy", env, n_steps=32, batch_size=8, seed=0, policy_kwargs=kwargs)
    rows = _rows(model, rollout_of(model, 32))
    before = weights(model)
    model.parts.algorithm._fit_values(rows, 1e-2)  # type: ignore[attr-defined]
    assert torch.equal(before, weights(model))
    assert any(p.grad is not None and bool(p.grad.any()) for p in model.parts.algorithm.critic)  # type: ignore[attr-defined]


def test_sub_sampling_and_single_steps() -> None:
    model = agent(sub_sampling_factor=4)
    rows = _rows(model, rollout_of(model, 64))
    assert len(model.parts.algorithm._policy_batch(rows)) == 32  # type: ignore[attr-defined]
    model.learn(256)
    with pytest.raises(SettingsError, match="one step per rollout"):
        TRPO("MlpPolicy", "CartPole-v1", n_steps=1)
    TRPO("MlpPolicy", "CartPole-v1", n_steps=1, normalize_advantage=False)
    product = model.hessian_vector_product
    assert callable(product)
