"""Losses and weights of updates equal a reference with autograd and numpy, written from the paper (arXiv:2006.04779)."""

from __future__ import annotations

import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Normal

from rlsdk.environments import to_space
from rlsdk_cql import CQL
from rlsdk_cql.penalty import exact_penalty, sampled_penalty
from rlsdk_datasets import Dataset, RecordedEpisode, write_episodes
from tests.peer_updates import some_in_the_fast_suite

FORCE, CHOICE, CHOICES = (
    spaces.Box(-0.5, 1.0, (2,), np.float32),
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([2, 3]),
)


def recorded(folder: Path, actions: spaces.Space[Any]) -> Path:
    """Random episodes, half of which terminate."""
    dice, episodes = torch.Generator().manual_seed(3), []
    actions.seed(3)
    for number in range(4):
        seen, rewards = torch.randn(31, 3, generator=dice), torch.randn(30, generator=dice)
        chosen = torch.as_tensor(np.stack([np.asarray(actions.sample()) for _ in range(30)]))
        episodes.append(RecordedEpisode(seen, chosen, rewards, terminated=number % 2 == 0))
    return write_episodes(folder / "demo", episodes, to_space(spaces.Box(-9.0, 9.0, (3,))), to_space(actions))


def settings_of(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "alpha": float(rng.choice([0.0, 1.0, 5.0])),
        "tau": float(rng.uniform(0.001, 0.5)),
        "gamma": float(rng.uniform(0.8, 1.0)),
        "learning_rate": float(10 ** rng.uniform(-4, -2)),
    }


class Dual:
    """The weight of the penalty: a constant, or exp of a number that Adam trains."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.log = nn.Parameter(torch.tensor(math.log(config.alpha or 1.0), dtype=torch.float64))
        self.optimizer = torch.optim.Adam([self.log], config.learning_rate(1.0))

    def step(self, penalty: Tensor) -> float:
        """Return the weight before the step."""
        if self.config.threshold is None:
            return float(self.config.alpha)
        before = self.log.exp().item()
        self.optimizer.zero_grad()
        torch.autograd.backward(-self.log * (penalty.detach() - self.config.threshold))
        self.optimizer.step()
        return before


def move(target: nn.Module, online: nn.Module, tau: float) -> None:
    with torch.no_grad():
        for old, new in zip(target.parameters(), online.parameters(), strict=True):
            old.add_(tau * (new - old))


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


class Continuous:
    """Actor and critics as torch modules in float64, trained by equation 4 and the losses of soft actor-critic."""

    def __init__(self, agent: Any) -> None:
        self.config, actor = agent.config, agent.actor
        self.body = nn.Sequential(*deepcopy(list(actor.body))).double()
        self.mean, self.log_std = deepcopy(actor.mean).double(), deepcopy(actor.log_std).double()
        count = agent.config.policy_kwargs.n_critics
        self.critics = nn.ModuleList([stacked(agent.critic, member) for member in range(count)]).double()
        self.target, rate = deepcopy(self.critics), agent.config.learning_rate(1.0)
        own = rate if agent.config.actor_learning_rate is None else agent.config.actor_learning_rate(1.0)
        parts = nn.ModuleList([self.body, self.mean, self.log_std])
        self.actor_optimizer = torch.optim.Adam(parts.parameters(), own)
        self.optimizer = torch.optim.Adam(self.critics.parameters(), rate)
        self.log_coef, self.dual = nn.Parameter(torch.zeros((), dtype=torch.float64)), Dual(agent.config)
        self.coef_optimizer = torch.optim.Adam([self.log_coef], own)

    def normal(self, seen: Tensor) -> Normal:
        latent = self.body(seen)
        return Normal(self.mean(latent), self.log_std(latent).clamp(-20.0, 2.0).exp())

    def sample(self, normal: Normal, noise: Tensor) -> tuple[Tensor, Tensor]:
        before = normal.loc + normal.scale * noise
        action = before.tanh()
        return action, (normal.log_prob(before) - torch.log1p(-action.square())).sum(-1)

    def values(self, network: Any, seen: Tensor, action: Tensor) -> Tensor:
        return torch.stack([critic(torch.cat([seen, action], -1))[..., 0] for critic in network])

    def update(self, batch: Any, noise: Tensor, uniform: Tensor, number: int) -> dict[str, float]:
        config, seen, later = self.config, batch.observation.features.double(), batch.next_observation.features.double()
        taken, noise = ((batch.action.double() + 0.5) / 1.5) * 2.0 - 1.0, noise.double()
        count, coef = config.n_actions, self.log_coef.detach().exp()
        action, log_prob = self.sample(self.normal(seen), noise[0])
        self.coef_optimizer.zero_grad()
        torch.autograd.backward(-(self.log_coef * (log_prob.detach() - 2.0)).mean())
        self.coef_optimizer.step()
        with torch.no_grad():
            now, following = self.normal(seen), self.normal(later)
            ended = (batch.discount == 0.0).unsqueeze(-1)
            mixed = Normal(torch.where(ended, now.loc, following.loc), torch.where(ended, now.scale, following.scale))
            next_action, next_log_prob = self.sample(mixed, noise[1])
            best = self.values(self.target, later, next_action).amin(0)
            bonus = coef * next_log_prob if config.backup_entropy else 0.0
            wanted = batch.reward.double() + batch.discount.double() * (best - bonus)
            mine, theirs = self.sample(now, noise[2 : count + 2]), self.sample(mixed, noise[count + 2 :])
        actions = torch.cat([2.0 * uniform.double() - 1.0, mine[0], theirs[0]])
        density = torch.cat([torch.full(mine[1].shape, -2.0 * math.log(2.0), dtype=torch.float64), mine[1], theirs[1]])
        others = self.values(self.critics, seen.expand(len(actions), *seen.shape), actions)
        current = self.values(self.critics, seen, taken)
        integral = ((others - density).exp().mean(1)).log()
        penalty = (integral - current).mean(-1)
        weight = self.dual.step(penalty.mean())
        loss = (0.5 * (current - wanted).square().mean(-1) + weight * penalty).sum()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        if number < config.cloning_updates:
            fresh = self.normal(seen)
            gain = (fresh.log_prob(taken.atanh()) - torch.log1p(-taken.square())).sum(-1)
        else:
            gain = self.values(self.critics, seen, action).amin(0)
        actor_loss = (coef * log_prob - gain).mean()
        self.actor_optimizer.zero_grad()
        torch.autograd.backward(actor_loss)
        self.actor_optimizer.step()
        move(self.target, self.critics, config.tau)
        found = {"train/critic_loss": loss, "train/actor_loss": actor_loss, "train/penalty": penalty.mean()}
        return {name: value.item() for name, value in found.items()}


@pytest.mark.parametrize("seed", some_in_the_fast_suite(60))
def test_updates_of_box_actions_equal_the_reference(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    settings = settings_of(rng) | {
        "n_actions": int(rng.integers(1, 5)),
        "cloning_updates": int(rng.integers(0, 3)),
        "backup_entropy": bool(rng.random() < 0.5),
        "actor_learning_rate": None if rng.random() < 0.5 else 1e-3,
        "policy_kwargs": {
            "net_arch": [int(rng.integers(4, 20))] * int(rng.integers(1, 3)),
            "n_critics": int(rng.integers(1, 4)),
        },
    }
    if settings["alpha"] and rng.random() < 0.5:
        settings["threshold"] = float(rng.uniform(-1.0, 5.0))
    agent: Any = CQL("MlpPolicy", None, dataset=Dataset.at(recorded(tmp_path, FORCE)), seed=seed, **settings)
    reference, algorithm = Continuous(agent), agent.parts.algorithm
    dice, noise_dice = torch.Generator().manual_seed(seed), torch.Generator()
    for number in range(int(rng.integers(2, 9))):
        batch = agent.parts.sample(int(rng.integers(1, 30)), dice)
        noise_dice.set_state(algorithm.generator.get_state())
        rows, count = len(batch.reward), settings["n_actions"]
        noise = torch.randn(2 * count + 2, rows, 2, generator=noise_dice)
        uniform = torch.rand(count, rows, 2, generator=noise_dice)
        wanted = reference.update(batch, noise, uniform, number)
        with torch.enable_grad():
            found = algorithm.update(batch, progress=0.0)
        assert {name: float(found[name]) for name in wanted} == pytest.approx(wanted, rel=5e-4, abs=5e-5)
    torch.testing.assert_close(agent.actor.mean.weight.double(), reference.mean.weight, rtol=2e-3, atol=2e-4)
    biases = torch.stack([each[-1].bias for each in reference.target])  # type: ignore[index,union-attr]
    torch.testing.assert_close(
        agent.critic_target.ensemble.layers[-1].bias[:, 0].double(), biases, rtol=2e-3, atol=2e-4
    )


class Choices:
    """The values of choices as torch modules in float64, trained by Q-learning with the penalty."""

    def __init__(self, agent: Any, sizes: tuple[int, ...]) -> None:
        self.config, policy, self.sizes = agent.config, agent.actor, sizes
        self.online = nn.Sequential(*deepcopy(list(policy.body)), deepcopy(policy.head)).double()
        self.target, self.dual = deepcopy(self.online), Dual(agent.config)
        self.optimizer = torch.optim.Adam(self.online.parameters(), agent.config.learning_rate(1.0))

    def update(self, batch: Any, action: Tensor) -> dict[str, float]:
        config, seen, later = self.config, batch.observation.features.double(), batch.next_observation.features.double()
        with torch.no_grad():
            chooser = self.online(later) if config.double_q else self.target(later)
            rows = zip(chooser.split(self.sizes, -1), self.target(later).split(self.sizes, -1), strict=True)
            best = [values.gather(-1, by.argmax(-1, keepdim=True))[:, 0] for by, values in rows]
        losses, penalties = [], []
        for number, part in enumerate(self.online(seen).split(self.sizes, -1)):
            taken = part.gather(-1, action[:, number : number + 1])[:, 0]
            wanted = batch.reward.double() + batch.discount.double() * best[number]
            losses.append(nn.functional.smooth_l1_loss(taken, wanted))
            penalties.append((part.exp().sum(-1).log() - taken).mean())
        penalty = torch.stack(penalties).mean()
        loss = torch.stack(losses).mean() + self.dual.step(penalty) * penalty
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        move(self.target, self.online, config.tau)
        return {"train/loss": loss.item(), "train/penalty": penalty.item()}


@pytest.mark.parametrize("seed", some_in_the_fast_suite(60))
def test_updates_of_choices_equal_the_reference(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    settings = settings_of(rng) | {"double_q": bool(rng.random() < 0.5), "policy_kwargs": {"net_arch": [12]}}
    if settings["alpha"] and rng.random() < 0.5:
        settings["threshold"] = float(rng.uniform(-1.0, 2.0))
    space: spaces.Space[Any] = (CHOICE, CHOICES)[seed % 2]
    agent: Any = CQL("MlpPolicy", None, dataset=Dataset.at(recorded(tmp_path, space)), seed=seed, **settings)
    reference, algorithm = Choices(agent, (3,) if space is CHOICE else (2, 3)), agent.parts.algorithm
    dice = torch.Generator().manual_seed(seed)
    for _ in range(int(rng.integers(2, 9))):
        batch = agent.parts.sample(int(rng.integers(1, 30)), dice)
        wanted = reference.update(batch, (batch.action - 2).unsqueeze(-1) if space is CHOICE else batch.action)
        with torch.enable_grad():
            found = algorithm.update(batch, progress=0.0)
        assert {name: float(found[name]) for name in wanted} == pytest.approx(wanted, rel=5e-4, abs=5e-5)
    torch.testing.assert_close(agent.actor.head.weight.double(), reference.online[-1].weight, rtol=2e-3, atol=2e-4)


def test_the_penalty_of_samples_estimates_the_integral() -> None:
    """For Q(a) = 3 a, log of the integral of exp Q over [-1, 1] is log((e^3 - e^-3) / 3), however samples are drawn."""
    dice = torch.Generator().manual_seed(0)
    uniform = torch.rand(20_000, 1, generator=dice, dtype=torch.float64) * 2.0 - 1.0
    # samples with the density (1 + a) / 2, of which large actions are more likely
    more = torch.rand(20_000, 1, generator=dice, dtype=torch.float64).sqrt() * 2.0 - 1.0
    density = torch.cat([torch.full_like(uniform, 0.5), (1.0 + more) / 2.0])
    sampled, at = torch.cat([uniform, more]), torch.full((1, 1), 0.25, dtype=torch.float64)
    penalty, _ = sampled_penalty(3.0 * sampled.unsqueeze(0), density.log(), 3.0 * at)
    assert float(penalty[0]) == pytest.approx(math.log((math.exp(3.0) - math.exp(-3.0)) / 3.0) - 0.75, abs=0.02)


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_penalties_are_those_of_autograd(masked: bool) -> None:
    dice = torch.Generator().manual_seed(1)
    values = torch.randn(6, 5, generator=dice, dtype=torch.float64, requires_grad=True)
    taken, mask = torch.tensor([[0, 2]] * 6), torch.tensor([[True, True, False, True, True]] * 6)
    penalty, grad = exact_penalty(values.detach(), taken, (2, 3), mask if masked else None)
    parts = values.exp() * (mask if masked else 1.0)
    logs = parts[:, :2].sum(-1).log() + parts[:, 2:].sum(-1).log()
    wanted = (logs - values[:, 0] - values[:, 4]).mean() / 2.0
    torch.autograd.backward(wanted)
    torch.testing.assert_close(penalty, wanted.detach())
    torch.testing.assert_close(grad, values.grad)
    if masked:
        assert not bool(grad[:, 2].any())


def test_the_penalty_of_huge_values_is_finite() -> None:
    values, taken = torch.tensor([[1e30, -1e30], [0.0, 3e38]]), torch.tensor([[1], [0]])
    penalty, grad = exact_penalty(values, taken, (2,), None)
    assert bool(grad.isfinite().all())
    sampled, density = torch.tensor([[[1e30], [-1e30]]]), torch.tensor([[0.0], [-50.0]])
    both = sampled_penalty(sampled, density, torch.zeros(1, 1))
    assert bool(both[0].isfinite().all())
    assert all(bool(each.isfinite().all()) for each in both[1])
    assert float(penalty) > 1e30
