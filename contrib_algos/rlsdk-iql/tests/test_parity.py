"""Losses and weights of updates equal a reference with autograd and numpy, written from the paper (arXiv:2110.06169)."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlsdk.environments import to_space
from rlsdk_datasets import Dataset, RecordedEpisode, write_episodes
from rlsdk_iql import IQL
from rlsdk_iql.losses import advantage_weights, expectile_loss
from tests.peer_updates import some_in_the_fast_suite

ACTIONS: list[spaces.Space[Any]] = [
    spaces.Box(-0.5, 1.0, (2,), np.float32),
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(2),
]


def recorded(folder: Path, actions: spaces.Space[Any]) -> Path:
    """Random episodes, half of which terminate."""
    dice, episodes = torch.Generator().manual_seed(3), []
    actions.seed(3)
    for number in range(4):
        seen, rewards = torch.randn(31, 3, generator=dice), torch.randn(30, generator=dice)
        chosen = torch.as_tensor(np.stack([np.asarray(actions.sample()) for _ in range(30)]))
        episodes.append(RecordedEpisode(seen, chosen, rewards, terminated=number % 2 == 0))
    return write_episodes(folder / "demo", episodes, to_space(spaces.Box(-9.0, 9.0, (3,))), to_space(actions))


def stacked(network: Any, member: int) -> nn.Sequential:
    """One critic of an ensemble as a network of torch."""
    layers: list[nn.Module] = []
    for layer in network.ensemble.layers:
        if isinstance(weight := getattr(layer, "weight", None), Tensor):
            linear = nn.Linear(*weight.shape[1:])
            linear.weight.data = weight[member].T.clone().detach()
            linear.bias.data = layer.bias[member, 0].clone().detach()
            layers.append(linear)
        else:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Reference:
    """The reference: networks of torch modules in float64, trained by equations 5 to 7 of the paper."""

    def __init__(self, agent: IQL, actions: spaces.Space[Any]) -> None:
        self.config: Any = agent.config
        self.space, policy = actions, agent.actor
        head: Any = policy.head
        self.value = nn.Sequential(*deepcopy(list(policy.critic_body)), deepcopy(policy.value)).double()  # type: ignore[arg-type]
        self.actor = nn.Sequential(*deepcopy(list(policy.body)), deepcopy(head.linear)).double()  # type: ignore[arg-type]
        self.log_std = nn.Parameter(head.log_std.detach().double().clone()) if hasattr(head, "log_std") else None
        count = agent.config.policy_kwargs.n_critics
        self.critics = nn.ModuleList([stacked(agent.critic, member) for member in range(count)]).double()
        self.target = deepcopy(self.critics)
        rate = agent.config.learning_rate(1.0)
        acting = [*self.actor.parameters(), *([] if self.log_std is None else [self.log_std])]
        groups = (self.value.parameters(), acting, self.critics.parameters())
        self.optimizers = [torch.optim.Adam(group, rate) for group in groups]

    def inputs(self, action: Tensor) -> Tensor:
        space = self.space
        if isinstance(space, spaces.Box):
            return ((action.double() + 0.5) / 1.5) * 2.0 - 1.0
        if isinstance(space, spaces.MultiBinary):
            return action.double()
        if isinstance(space, spaces.Discrete):
            return torch.eye(3, dtype=torch.float64)[action - 2]
        return torch.cat([torch.eye(n, dtype=torch.float64)[action[:, k]] for k, n in enumerate((2, 3))], 1)

    def log_prob(self, seen: Tensor, action: Tensor) -> Tensor:
        raw, space, inputs = self.actor(seen), self.space, self.inputs(action)
        if isinstance(space, spaces.Box):
            assert self.log_std is not None
            return torch.distributions.Normal(raw.tanh(), self.log_std.exp()).log_prob(inputs).sum(-1)
        if isinstance(space, spaces.MultiBinary):
            return torch.distributions.Bernoulli(logits=raw).log_prob(inputs).sum(-1)
        sizes = [3] if isinstance(space, spaces.Discrete) else [2, 3]
        logs = torch.cat([part.log_softmax(-1) for part in raw.split(sizes, -1)], -1)
        return (logs * inputs).sum(-1)

    def _step(self, number: int, loss: Tensor) -> float:
        self.optimizers[number].zero_grad()
        torch.autograd.backward(loss)
        self.optimizers[number].step()
        return loss.item()

    def update(self, batch: Any) -> dict[str, float]:
        config, seen, later = self.config, batch.observation.features.double(), batch.next_observation.features.double()
        both = torch.cat([seen, self.inputs(batch.action)], -1)
        with torch.no_grad():
            q = torch.stack([critic(both) for critic in self.target]).amin(0)[:, 0]
        error = q - self.value(seen)[:, 0]
        share = (config.expectile - (error < 0).double()).abs()
        found = {"train/value_loss": self._step(0, (share * error**2).mean())}
        with torch.no_grad():
            now, following = self.value(seen)[:, 0], self.value(later)[:, 0]
            weight = (config.beta * (q - now)).exp().clamp(max=config.max_weight)
            wanted = batch.reward.double() + batch.discount.double() * following
        found["train/actor_loss"] = self._step(1, -(weight * self.log_prob(seen, batch.action)).mean())
        if self.log_std is not None:
            self.log_std.data.clamp_(config.log_std_min, 2.0)
        errors = [(critic(both)[:, 0] - wanted).square().mean() for critic in self.critics]
        found["train/critic_loss"] = self._step(2, torch.stack(errors).sum())
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critics.parameters(), strict=True):
                old.add_(config.tau * (new - old))
        return found


@pytest.mark.parametrize("seed", some_in_the_fast_suite(60))
def test_updates_equal_the_reference(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    actions = ACTIONS[seed % len(ACTIONS)]
    settings: dict[str, Any] = {
        "expectile": float(rng.uniform(0.05, 0.95)),
        "beta": float(rng.choice([0.0, 1.0, 3.0, 20.0])),
        "max_weight": float(rng.choice([1.5, 100.0])),
        "log_std_min": float(rng.choice([-5.0, 0.0])),
        "tau": float(rng.uniform(0.001, 0.5)),
        "gamma": float(rng.uniform(0.8, 1.0)),
        "learning_rate": float(10 ** rng.uniform(-4, -2)),
        "policy_kwargs": {
            "net_arch": [int(rng.integers(4, 20))] * int(rng.integers(1, 3)),
            "n_critics": int(rng.integers(1, 4)),
        },
    }
    agent = IQL("MlpPolicy", None, dataset=Dataset.at(recorded(tmp_path, actions)), seed=seed, **settings)
    reference, algorithm = Reference(agent, actions), agent.parts.algorithm
    dice = torch.Generator().manual_seed(seed)
    for _ in range(int(rng.integers(2, 9))):
        batch = agent.parts.sample(int(rng.integers(1, 30)), dice)
        wanted = reference.update(batch)
        with torch.enable_grad():
            found = algorithm.update(batch, progress=0.0)
        assert {name: float(found[name]) for name in wanted} == pytest.approx(wanted, rel=2e-4, abs=2e-5)
    head: Any = agent.actor.head
    pairs = [
        (agent.actor.value.weight, reference.value[-1].weight),
        (head.linear.weight, reference.actor[-1].weight),
        (agent.critic_target.ensemble.layers[-1].bias[:, 0], torch.stack([each[-1].bias for each in reference.target])),  # type: ignore[index,union-attr]
    ]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-4)  # type: ignore[operator]


@pytest.mark.parametrize("expectile", [0.01, 0.5, 0.9])
def test_the_loss_is_least_at_the_expectile(expectile: float) -> None:
    rng = np.random.default_rng(0)
    wanted = rng.normal(size=500)
    grid = np.linspace(-3.0, 3.0, 6001)
    error = wanted[:, None] - grid
    losses = (np.abs(expectile - (error < 0)) * error**2).mean(0)
    best = grid[losses.argmin()]
    values = torch.full((500,), float(best), dtype=torch.float64)
    loss, gradient = expectile_loss(values, torch.as_tensor(wanted), expectile)
    assert float(loss) == pytest.approx(losses.min(), rel=1e-9)
    assert abs(float(gradient.sum())) < 2e-3
    assert float(expectile_loss(values - 0.5, torch.as_tensor(wanted), expectile)[1].sum()) < 0.0


def test_weights_of_any_advantage_are_finite() -> None:
    advantage = torch.tensor([-1e9, -1.0, 0.0, 1.0, 1e9])
    found = advantage_weights(advantage, 3.0, 100.0)
    np.testing.assert_allclose(found.numpy(), [0.0, np.exp(-3.0), 1.0, np.exp(3.0), 100.0], rtol=1e-6)
