"""Networks of users that add an auxiliary loss, in algorithms of every kind."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rlsdk
from rlsdk.errors import UsageError
from rlsdk.networks import with_auxiliary_loss
from rlsdk_sb3 import BaseFeaturesExtractor
from rlsdk_testing.subject import flat_state


class Autoencoder(BaseFeaturesExtractor):
    """A features extractor whose decoder is trained by the reconstruction error of the observation alone."""

    def __init__(self, observation_space: Any, features_dim: int = 8, weight: float = 1.0) -> None:
        super().__init__(observation_space, features_dim)
        self.encoder = nn.Sequential(nn.Linear(observation_space.shape[0], features_dim), nn.Tanh())
        self.decoder = nn.Linear(features_dim, observation_space.shape[0])
        self.weight = weight

    def forward(self, observations: Tensor) -> Tensor:
        features = self.encoder(observations)
        return with_auxiliary_loss(features, self.weight * self.error(observations, features))

    def error(self, observations: Tensor, features: Tensor) -> Tensor:
        return (self.decoder(features) - observations).square().mean()


REPLAY = {"buffer_size": 2000, "learning_starts": 20, "batch_size": 32, "learning_rate": 1e-2}
ROLLOUT = {"n_steps": 64, "batch_size": 32, "learning_rate": 1e-2}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a2c": ("CartPole-v1", {"learning_rate": 1e-2}),
    "ddpg": ("Pendulum-v1", REPLAY),
    "dqn": ("CartPole-v1", {**REPLAY, "train_freq": 1}),
    "maskable-ppo": ("CartPole-v1", {**ROLLOUT, "use_masking": False}),
    "ppo": ("CartPole-v1", ROLLOUT),
    "qrdqn": ("CartPole-v1", {**REPLAY, "train_freq": 1}),
    "recurrent-ppo": ("Pendulum-v1", ROLLOUT),
    "sac": ("Pendulum-v1", REPLAY),
    "td3": ("Pendulum-v1", REPLAY),
    "tqc": ("Pendulum-v1", REPLAY),
}
NATURAL = {"acktr": {}, "trpo": {"n_steps": 64}}


def made(algorithm: str, weight: float) -> Any:
    env, settings = CASES[algorithm]
    network = {"features_extractor_class": Autoencoder, "features_extractor_kwargs": {"weight": weight}}
    return rlsdk.make(algorithm, env=env, seed=0, policy_kwargs={**network, "net_arch": [16]}, **settings)


def extractors(agent: Any) -> list[Autoencoder]:
    return [module for module in agent.policy.modules() if isinstance(module, Autoencoder)]


def errors(agent: Any, observations: Tensor) -> list[float]:
    """The reconstruction error of every extractor that is trained."""
    with torch.no_grad():
        trained = [each for each in extractors(agent) if next(each.parameters()).requires_grad]
        return [float(each.error(observations, each.encoder(observations))) for each in trained]


def visited(env_id: str) -> Tensor:
    """Observations [200, ..] of episodes with random actions."""
    env = gymnasium.make(env_id)
    env.action_space.seed(0)
    rows = [env.reset(seed=0)[0]]
    for _ in range(199):
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        rows.append(env.reset()[0] if terminated or truncated else observation)
    return torch.as_tensor(np.stack(rows))


@pytest.mark.parametrize("algorithm", CASES)
def test_the_decoder_learns(algorithm: str) -> None:
    agent, without = made(algorithm, 1.0), made(algorithm, 0.0)
    observations = visited(CASES[algorithm][0])
    before = [each.decoder.weight.clone() for each in extractors(without)]
    for each in (agent, without):
        each.learn(400)
    assert all(torch.equal(old, each.decoder.weight) for old, each in zip(before, extractors(without), strict=True))
    assert max(errors(agent, observations)) < 0.7 * min(errors(without, observations))


def test_its_gradient_is_added() -> None:
    torch.manual_seed(0)
    network, x = nn.Linear(3, 2), torch.randn(5, 3)
    outputs, loss = network(x), 0.3 * network.weight.square().sum()
    (with_auxiliary_loss(outputs, loss).pow(3).mean()).backward()
    found = [parameter.grad.clone() for parameter in network.parameters()]  # type: ignore[union-attr]
    wanted = torch.autograd.grad(
        network(x).pow(3).mean() + 0.3 * network.weight.square().sum(), tuple(network.parameters())
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_passes_without_gradients_leave_it_out() -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    with torch.no_grad():
        plain = w * 2.0
        assert with_auxiliary_loss(plain, w.sum()) is plain


@pytest.mark.parametrize("algorithm", NATURAL)
def test_natural_gradients_refuse_it(algorithm: str) -> None:
    network = {"features_extractor_class": Autoencoder, "net_arch": [16]}
    agent = rlsdk.make(algorithm, env="CartPole-v1", seed=0, policy_kwargs=network, **NATURAL[algorithm])
    with pytest.raises(UsageError, match=f"^{algorithm.upper()} steps along natural gradients"):
        agent.learn(64)


class Critic(nn.Module):
    """A critic with an auxiliary loss that depends on the actions."""

    def __init__(self, observation_space: Any, action_dim: int, output_dim: int, weight: float) -> None:
        super().__init__()
        self.layers = nn.Linear(observation_space.shape[0] + action_dim, output_dim)
        self.weight = weight

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        values = self.layers(torch.cat([observations, actions], 1))
        return with_auxiliary_loss(values, self.weight * actions.square().mean())


def test_the_gradient_of_an_action_has_no_part_of_it() -> None:
    """The auxiliary loss of a critic does not change the gradient of the actor, which maximizes values."""

    def trained(weight: float) -> dict[str, Tensor]:
        network = {"critic_class": Critic, "critic_kwargs": {"weight": weight}, "net_arch": [8]}
        agent = rlsdk.make("sac", env="Pendulum-v1", seed=0, policy_kwargs=network, **REPLAY)
        return flat_state(agent.learn(60))

    with_loss, without = trained(100.0), trained(0.0)
    assert all(torch.equal(value, without[name]) for name, value in with_loss.items())


@pytest.mark.parametrize("loss", [1.0, torch.ones(3), torch.tensor(2), None])
def test_a_loss_is_one_number(loss: Any) -> None:
    with pytest.raises(UsageError, match="0-d float tensor"):
        with_auxiliary_loss(torch.zeros(2, 3), loss)
