"""Returns and updates equal an independent computation in float64: ends of episodes, padding rows, masks, several choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments import make_vec_env
from rlsdk.records import FinalObservations, Observation, Rollout, StepData
from rlsdk_envs import AnySpaceEnv
from rlsdk_pqn import PQN

T, B, RATE = 9, 3, 0.05
SPACES = {"one choice": spaces.Discrete(4, start=3), "three choices": spaces.MultiDiscrete([2, 4, 3], start=[0, 5, -1])}
SEEN = spaces.Box(-1.0, 1.0, (3,), np.float32)
Numbers = NDArray[np.float64]


def made(actions: spaces.Space[Any], **settings: Any) -> PQN:
    env = make_vec_env(lambda: AnySpaceEnv(SEEN, actions), B, vectorization="sync")
    networks = {"net_arch": [8], "optimizer_class": "sgd"}
    every = {"n_steps": T, "batch_size": None, "n_epochs": 1, "max_grad_norm": None, "learning_rate": RATE} | settings
    return PQN("MlpPolicy", env, seed=0, policy_kwargs=networks, **every)


def rollout_of(model: PQN, seed: int, *, masks: bool, padding: bool) -> Rollout[Any, Any]:
    """Random steps. In column 0 an episode terminates, in column 1 one is truncated; a padding row may follow each end."""
    rng, sizes = np.random.default_rng(seed), model.q_net.sizes

    def observation(*shape: int) -> Observation:
        allowed = rng.random((*shape, sum(sizes))) < 0.6
        allowed[..., np.cumsum([0, *sizes[:-1]])] = True
        features = torch.from_numpy(rng.normal(size=(*shape, 3)).astype(np.float32))
        return Observation(features, torch.zeros(shape, dtype=torch.bool), torch.from_numpy(allowed) if masks else None)

    terminated, truncated = torch.zeros(2, T, B, dtype=torch.bool)
    terminated[3, 0] = truncated[5, 1] = truncated[T - 1, 2] = True
    valid = torch.ones(T, B, dtype=torch.bool)
    if padding:
        valid[4, 0] = valid[6, 1] = False
    taken = np.stack([rng.integers(size, size=(T, B)) for size in sizes], -1)
    action = torch.from_numpy(taken if len(sizes) > 1 else taken[..., 0]) + model.q_net.start
    reward = torch.from_numpy(rng.normal(size=(T, B)).astype(np.float32))
    steps = StepData(observation(T, B), action, reward, terminated, truncated, valid, ())
    finals = FinalObservations(torch.tensor([3, 5, T - 1]), torch.tensor([0, 1, 2]), observation(3))
    return Rollout(steps, (), observation(B), (), finals)


def best(model: PQN, observation: Observation) -> list[Numbers]:
    """The largest allowed value of each choice, [..] each."""
    lead = observation.is_first.shape
    with torch.no_grad():
        values = model.q_net(observation.features.flatten(0, len(lead) - 1)).double().view(*lead, -1).numpy()
    mask = np.ones_like(values, bool) if observation.action_mask is None else observation.action_mask.numpy()
    parts = np.split(np.where(mask, values, -np.inf), np.cumsum(model.q_net.sizes)[:-1], -1)
    return [part.max(-1) for part in parts]


def returns(model: PQN, rollout: Rollout[Any, Any], gamma: float, lam: float) -> Numbers:
    """The targets [T, B, choices], step by step: G_t = r_t + gamma ((1 - lambda) max Q(s_{t+1}) + lambda G_{t+1})."""
    steps, finals = rollout.steps, rollout.final_observations
    assert finals is not None
    found = []
    inside, last, ends = (
        best(model, each) for each in (steps.observation, rollout.last_observation, finals.observation)
    )
    for choice in range(len(model.q_net.sizes)):
        target = np.zeros((T, B))
        for b in range(B):
            for t in reversed(range(T)):
                following = last[choice][b] if t == T - 1 else inside[choice][t + 1, b]
                goes_on = t < T - 1 and bool(steps.valid[t + 1, b])
                for f in range(3):
                    if (int(finals.time[f]), int(finals.env[f])) == (t, b):
                        following, goes_on = ends[choice][f], False
                if goes_on:
                    following = (1 - lam) * following + lam * target[t + 1, b]
                target[t, b] = float(steps.reward[t, b]) + gamma * following * (not steps.terminated[t, b])
        found.append(target)
    return np.stack(found, -1)


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("actions", SPACES.values(), ids=SPACES)
def test_an_update_equals_the_formulas(actions: spaces.Space[Any], masks: bool, padding: bool, lam: float) -> None:
    model = made(actions, gamma=0.9, q_lambda=lam)
    rollout = rollout_of(model, 1, masks=masks, padding=padding)
    target = torch.from_numpy(returns(model, rollout, 0.9, lam)).flatten(0, 1)
    steps, network = rollout.steps, model.q_net
    values = network(steps.observation.features.flatten(0, 1))
    chosen = network.from_environment(steps.action.flatten(0, 1))
    first = torch.tensor(np.cumsum([0, *network.sizes[:-1]]))
    errors = (values.gather(1, chosen + first).double() - target)[steps.valid.flatten()]
    loss = errors.square().mean() / 2
    wanted = {
        name: parameter.detach() - RATE * grad
        for (name, parameter), grad in zip(
            network.named_parameters(), torch.autograd.grad(loss, list(network.parameters())), strict=True
        )
    }
    metrics = model.parts.algorithm.update(rollout, progress=0.0)
    assert float(metrics["train/loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.detach(), wanted[name], atol=2e-6, rtol=1e-4)


def test_padding_rows_are_in_no_minibatch() -> None:
    """However large their numbers are, also in small minibatches."""
    found: list[list[Tensor]] = []
    for size in (1.0, 1e6):
        model = made(SPACES["one choice"], batch_size=8, n_epochs=3)
        rollout = rollout_of(model, 2, masks=False, padding=True)
        rollout.steps.reward[~rollout.steps.valid] = size
        model.parts.algorithm.update(rollout, progress=0.0)
        found.append([each.detach().clone() for each in model.q_net.parameters()])
    assert all(map(torch.equal, *found))


def test_every_epoch_learns_from_every_row_once() -> None:
    model = made(SPACES["one choice"], batch_size=5, n_epochs=4)
    update: Any = model.parts.algorithm
    seen: list[Tensor] = []
    learn = update._learn

    def noted(features: Tensor, action: Tensor, target: Tensor, rate: float) -> Tensor:
        seen.append(target)
        loss: Tensor = learn(features, action, target, rate)
        return loss

    update._learn = noted
    rollout = rollout_of(model, 3, masks=False, padding=False)
    update.update(rollout, progress=0.0)
    assert [len(each) for each in seen] == 4 * ([5] * (T * B // 5) + [T * B % 5])
    epochs = torch.cat(seen).view(4, -1)
    assert all(torch.equal(epoch.sort().values, epochs[0].sort().values) for epoch in epochs[1:])
    assert not any(torch.equal(epoch, epochs[0]) for epoch in epochs[1:])
    assert update.updates == 4
