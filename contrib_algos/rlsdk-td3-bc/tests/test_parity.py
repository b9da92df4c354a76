"""Losses and weights of updates equal a reference with autograd, written from the paper (arXiv:2106.06860)."""

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
from rlsdk.records import Transitions
from rlsdk_datasets import Dataset, RecordedEpisode, write_episodes
from rlsdk_td3_bc import TD3BC
from tests.peer_updates import some_in_the_fast_suite


def recorded(folder: Path, bound: float, size: int) -> Path:
    """Random episodes with actions [size] in [-bound, 2 bound], some of which terminate."""
    dice = torch.Generator().manual_seed(3)
    episodes = []
    for number in range(4):
        seen, chosen = torch.randn(31, 3, generator=dice), torch.rand(30, size, generator=dice)
        rewards = torch.randn(30, generator=dice)
        episodes.append(RecordedEpisode(seen, (3 * chosen - 1) * bound, rewards, terminated=number % 2 == 0))
    space = spaces.Box(-bound, 2 * bound, (size,), np.float32)
    return write_episodes(folder / "demo", episodes, to_space(spaces.Box(-9.0, 9.0, (3,))), to_space(space))


class Reference:
    """The reference: networks of torch modules, trained by the equations of the paper."""

    def __init__(self, agent: TD3BC) -> None:
        self.config: Any = agent.config
        actor = agent.actor
        self.actor = nn.Sequential(*deepcopy(actor.body), deepcopy(actor.mean), nn.Tanh())
        self.critics: list[nn.Sequential] = []
        for member in range(agent.config.policy_kwargs.n_critics):
            layers: list[nn.Module] = []
            layers_of: Any = agent.critic.ensemble.layers
            for layer in layers_of:
                if isinstance(weight := getattr(layer, "weight", None), Tensor):
                    linear = nn.Linear(*weight.shape[1:])
                    linear.weight.data, linear.bias.data = (
                        weight[member].T.clone().detach(),
                        layer.bias[member, 0].clone().detach(),
                    )
                    layers.append(linear)
                else:
                    layers.append(nn.ReLU())
            self.critics.append(nn.Sequential(*layers))
        self.targets = deepcopy((self.actor, self.critics))
        parameters = [p for critic in self.critics for p in critic.parameters()]
        self.optimizer = torch.optim.Adam(parameters, agent.config.learning_rate(1.0))
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), agent.config.learning_rate(1.0))

    def update(self, batch: Transitions, noise: Tensor, number: int, scale: Any) -> dict[str, float]:
        config, seen, later = self.config, batch.observation.features, batch.next_observation.features
        low, high = scale
        action = 2 * (batch.action - low) / (high - low) - 1
        actor, critics = self.targets
        with torch.no_grad():
            shift = (noise * config.target_policy_noise).clamp(-config.target_noise_clip, config.target_noise_clip)
            following = torch.cat([later, (actor(later) + shift).clamp(-1, 1)], -1)
            smallest = torch.stack([critic(following) for critic in critics]).amin(0)[:, 0]
            target = batch.reward + batch.discount * smallest
        values = [critic(torch.cat([seen, action], -1))[:, 0] for critic in self.critics]
        loss = sum((nn.functional.mse_loss(value, target) for value in values), torch.zeros(()))
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        losses = {"train/critic_loss": loss.item()}
        if number % config.policy_delay == 0:
            chosen = self.actor(seen)
            value = self.critics[0](torch.cat([seen, chosen], -1))
            weight = config.alpha / value.abs().mean().detach()
            loss = -weight * value.mean() + nn.functional.mse_loss(chosen, action)
            self.actor_optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.actor_optimizer.step()
            losses["train/actor_loss"] = loss.item()
            with torch.no_grad():
                for mine, online in zip((actor, *critics), (self.actor, *self.critics), strict=True):
                    for old, new in zip(mine.parameters(), online.parameters(), strict=True):
                        old.add_(config.tau * (new - old))
        return losses


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_updates_equal_the_reference(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    bound, size = float(rng.choice([0.5, 1.0, 2.0])), int(rng.integers(1, 3))
    settings: dict[str, Any] = {
        "alpha": float(rng.choice([0.0, 1.0, 2.5, 10.0])),
        "policy_delay": int(rng.integers(1, 4)),
        "target_policy_noise": float(rng.uniform(0.0, 1.0)),
        "target_noise_clip": float(rng.uniform(0.0, 1.0)),
        "tau": float(rng.uniform(0.001, 0.5)),
        "gamma": float(rng.uniform(0.8, 1.0)),
        "learning_rate": float(10 ** rng.uniform(-4, -2)),
        "policy_kwargs": {
            "net_arch": [int(rng.integers(4, 20))] * int(rng.integers(1, 3)),
            "n_critics": int(rng.integers(1, 4)),
        },
    }
    agent: Any = TD3BC(
        "MlpPolicy", None, dataset=Dataset.at(recorded(tmp_path, bound, size)), normalize=False, seed=seed, **settings
    )
    reference, algorithm = Reference(agent), agent.parts.algorithm
    dice, noise_dice = torch.Generator().manual_seed(seed), torch.Generator()
    for number in range(1, int(rng.integers(2, 9))):
        batch = agent.parts.buffer.sample(int(rng.integers(2, 30)), dice)
        noise_dice.set_state(algorithm.generator.get_state())
        noise = torch.randn(len(batch.reward), size, generator=noise_dice)
        wanted = reference.update(batch, noise, number, (-bound, 2 * bound))
        with torch.enable_grad():
            found = algorithm.update(batch, progress=0.0)
        assert {name: float(value) for name, value in found.items()} == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    mine = [*agent.actor.body.parameters(), *agent.actor.mean.parameters()]
    for ours, theirs in zip(mine, reference.actor.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)
