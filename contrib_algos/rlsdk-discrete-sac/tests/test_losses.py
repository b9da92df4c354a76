"""One update equals an independent computation in float64, with masks and with several choices; expectations are exact."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rlsdk.records import Observation, Transitions
from rlsdk_discrete_sac import DiscreteSAC
from rlsdk_discrete_sac.reference import losses
from rlsdk_envs import AnySpaceEnv

RATE, ROWS = 0.1, 16
SPACES = {"one choice": spaces.Discrete(4, start=3), "three choices": spaces.MultiDiscrete([2, 4, 3], start=[0, 5, -1])}
SEEN = spaces.Box(-1.0, 1.0, (3,), np.float32)


def made(actions: spaces.Space[Any], **settings: Any) -> DiscreteSAC:
    networks = {"net_arch": [8], "n_critics": 3, "optimizer_class": "sgd"}
    env = AnySpaceEnv(SEEN, actions)
    return DiscreteSAC("MlpPolicy", env, seed=0, learning_rate=RATE, policy_kwargs=networks, **settings)


def batch_of(model: DiscreteSAC, seed: int, *, masks: bool, weights: bool = False) -> Transitions:
    """Random transitions, every third one of which terminates. With `masks` a random half of the values is forbidden."""
    rng, sizes = np.random.default_rng(seed), model.actor.sizes
    first = np.cumsum([0, *sizes[:-1]])
    taken = np.stack([rng.integers(size, size=ROWS) for size in sizes], 1)

    def observation() -> Observation:
        allowed = rng.random((ROWS, sum(sizes))) < 0.5
        for start, column in zip(first, taken.T, strict=True):
            allowed[np.arange(ROWS), start + column] = True
        features = torch.from_numpy(rng.normal(size=(ROWS, 3)).astype(np.float32))
        return Observation(features, torch.zeros(ROWS, dtype=torch.bool), torch.from_numpy(allowed) if masks else None)

    action = torch.from_numpy(taken if len(sizes) > 1 else taken[:, 0]) + model.actor.start
    discount = torch.full((ROWS,), 0.9)
    discount[::3] = 0.0
    reward = torch.from_numpy(rng.normal(size=ROWS).astype(np.float32))
    weight = torch.from_numpy(rng.random(ROWS).astype(np.float32)) if weights else None
    return Transitions(observation(), action, reward, discount, observation(), torch.arange(ROWS), weight)


def exact(network: Any) -> Any:
    """A float64 copy of a network. Its layers convert their inputs, because encoders return float32."""
    copy = deepcopy(network).double().requires_grad_()
    for module in copy.modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda _, inputs: tuple(each.double() for each in inputs))
    return copy


def as_double(batch: Transitions) -> Transitions:
    def observation(of: Observation) -> Observation:
        return Observation(of.features.double(), of.is_first, of.action_mask)

    weight = None if batch.weight is None else batch.weight.double()
    seen, following = observation(batch.observation), observation(batch.next_observation)
    return Transitions(
        seen, batch.action, batch.reward.double(), batch.discount.double(), following, batch.index, weight
    )


def moved(before: Mapping[str, Tensor], loss: Tensor, network: Any) -> dict[str, Tensor]:
    """The parameters after one step of gradient descent along the loss, by autograd."""
    named = dict(network.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), retain_graph=True)
    return {name: before[name].double() - RATE * grad for name, grad in zip(named, found, strict=True)}


def require_equal(network: Any, wanted: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.detach().double(), wanted[name], atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("actions", SPACES.values(), ids=SPACES)
def test_an_update_equals_the_formulas(actions: spaces.Space[Any], masks: bool, weights: bool) -> None:
    model = made(actions, ent_coef=0.2, target_update_interval=1, tau=0.5)
    update: Any = model.parts.algorithm
    batch = batch_of(model, 1, masks=masks, weights=weights)
    actor, critics, target = exact(model.actor), exact(model.critic), exact(model.critic_target)
    networks = {
        "policy": actor,
        "algorithm.critics": critics,
        "algorithm.trained.target.network": target,
        "algorithm.entropy.log_alpha": torch.zeros(1),
    }
    starts = [{name: each.detach().clone() for name, each in net.named_parameters()} for net in (actor, critics)]
    wanted = losses(networks, as_double(batch), model.config, 0.0)
    metrics = update.update(batch, progress=0.5)
    assert float(metrics["train/critic_loss"]) == pytest.approx(
        float(wanted["algorithm.trained.optimizer"].detach()), rel=1e-5
    )
    require_equal(model.critic, moved(starts[1], wanted["algorithm.trained.optimizer"], critics))
    # the actor climbs the values of the critics after their step
    networks["algorithm.critics"] = exact(model.critic)
    loss = losses(networks, as_double(batch), model.config, 0.0)["algorithm.trained.actor_optimizer"]
    require_equal(model.actor, moved(starts[0], loss, actor))
    assert float(metrics["train/actor_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
    half = {name: (each + dict(model.critic.named_parameters())[name]) / 2 for name, each in target.named_parameters()}
    require_equal(model.critic_target, half)
    assert (update.td_error is None) is not weights


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("actions", SPACES.values(), ids=SPACES)
def test_the_coefficient_rises_where_the_entropy_is_below_its_target(actions: spaces.Space[Any], masks: bool) -> None:
    for scale, rises in ((0.999, True), (0.001, False)):
        model = made(actions, ent_coef="auto_0.5", target_entropy_scale=scale)
        last: Any = model.actor.head[0]
        with torch.no_grad():  # far from uniform, and far from certain
            last.weight.mul_(5.0)
        batch = batch_of(model, 2, masks=masks)
        networks = {
            "policy": exact(model.actor),
            "algorithm.critics": exact(model.critic),
            "algorithm.trained.target.network": exact(model.critic_target),
            "algorithm.entropy.log_alpha": model.parts.algorithm.entropy.log_alpha.detach().double().requires_grad_(),  # type: ignore[attr-defined]
        }
        loss = losses(networks, as_double(batch), model.config, 0.0)["algorithm.entropy.optimizer"]
        metrics = model.parts.algorithm.update(batch, progress=0.5)
        assert float(metrics["train/ent_coef_loss"]) == pytest.approx(float(loss.detach()), rel=1e-4)
        assert (float(model.parts.algorithm.entropy.value) > 0.5) is rises  # type: ignore[attr-defined]


def test_values_of_forbidden_actions_have_no_effect() -> None:
    """Neither in targets nor in the actor's loss, however large they are; and their probability is exactly 0."""
    batch, found = None, []
    for forbidden in (0.0, 1e6):
        model = made(spaces.Discrete(4), ent_coef=0.2)
        batch = batch_of(model, 3, masks=False)
        mask = torch.tensor([True, True, True, False]).expand(ROWS, 4)
        batch = Transitions(
            Observation(batch.observation.features, batch.observation.is_first, mask),
            batch.action.clamp(max=2),
            batch.reward,
            batch.discount,
            Observation(batch.next_observation.features, batch.observation.is_first, mask),
            batch.index,
        )
        for network in (model.critic, model.critic_target):
            with torch.no_grad():
                network.ensemble.layers[-1].bias[..., 3] += forbidden  # type: ignore[index,operator]
        metrics = model.parts.algorithm.update(batch, progress=0.0)
        chosen = model.actor.distribution_of(batch.observation)
        assert bool((chosen.probs[:, 3] == 0.0).all())
        found.append([float(metrics[f"train/{name}"]) for name in ("critic_loss", "actor_loss", "entropy")])
    assert found[0] == found[1]


def test_one_allowed_action_needs_no_entropy() -> None:
    """Its entropy is 0, which is the target for every share: a learned coefficient does not change."""
    model = made(spaces.Discrete(4), ent_coef="auto_0.5", target_entropy_scale=0.9)
    batch = batch_of(model, 4, masks=False)
    mask = torch.zeros(ROWS, 4, dtype=torch.bool).scatter(1, (batch.action - model.actor.start)[:, None], True)
    seen = Observation(batch.observation.features, batch.observation.is_first, mask)
    alone = Transitions(seen, batch.action, batch.reward, batch.discount, batch.next_observation, batch.index)
    metrics = model.parts.algorithm.update(alone, progress=0.0)
    assert float(metrics["train/entropy"]) == 0.0
    assert float(model.parts.algorithm.entropy.value) == 0.5  # type: ignore[attr-defined]
    assert all(bool(each.isfinite().all()) for each in model.actor.parameters())
