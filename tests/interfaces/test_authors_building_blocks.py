"""What authors of plugins combine: another action head, a base config without some fields, alpha without an update, an update
around that of another algorithm, and the last reward in an observation. All on public names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Beta

import rlsdk
from rlsdk.buffers import ReplayBuffer
from rlsdk.errors import SettingsError
from rlsdk.exploration import UniformWarmUp
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import ActionScale, build_actor_critic, build_encoder, build_squashed_actor
from rlsdk.records import Metrics, Transitions, successors
from rlsdk.registry import AlgorithmSpec, Manifest, load, unregister
from rlsdk.settings import without
from rlsdk.settings.off_policy import OffPolicyConfig, SoftActorCriticConfig
from rlsdk.spaces import Box, Space
from rlsdk.training import OffPolicyPlan, OnPolicyPlan
from rlsdk.updates import ClippedPolicy, EntropyCoefficient, FlatOptimizer
from rlsdk_acer.config import ACERConfig
from rlsdk_ppo.config import PPOConfig

Register = Callable[[str, type[Any], Any, str], str]


@pytest.fixture
def register() -> Iterator[Register]:
    """A function that registers an algorithm until the end of the test, and returns its id."""
    names: list[str] = []

    def new(name: str, config: type[Any], build: Any, actions: str) -> str:
        common: dict[str, Any] = {"id": name, "family": "test", "policies": ("MlpPolicy",)}
        manifest = Manifest(title=name, summary=name, sdk=">=0.1", actions=(actions,), observations=("Box",), **common)
        rlsdk.register(AlgorithmSpec(config_type=config, build=build, **common), manifest)
        names.append(name)
        return name

    yield new
    for name in names:
        unregister(name)


# --- another action head: a Beta policy ------------------------------------------------------------------------------


@dataclass(frozen=True)
class BetaActions:
    """Independent Beta distributions [N, A] over actions in [0, 1]."""

    a: Tensor
    b: Tensor

    def sample(self, generator: torch.Generator) -> Tensor:
        one, other = (torch._standard_gamma(each, generator=generator) for each in (self.a, self.b))
        return (one / (one + other)).clamp(1e-6, 1 - 1e-6)

    def mode(self) -> Tensor:
        return (self.a - 1) / (self.a + self.b - 2)

    def log_prob(self, action: Tensor) -> Tensor:
        return Beta(self.a, self.b).log_prob(action.clamp(1e-6, 1 - 1e-6)).sum(-1)

    def entropy(self) -> Tensor:
        return Beta(self.a, self.b).entropy().sum(-1)

    def kl_divergence(self, other: BetaActions) -> Tensor:
        return torch.distributions.kl_divergence(Beta(self.a, self.b), Beta(other.a, other.b)).sum(-1)


class BetaHead(nn.Module):
    """Both parameters are above 1, so that the density has one peak."""

    def __init__(self, space: Space, width: int) -> None:
        super().__init__()
        assert isinstance(space, Box)
        self.scale = ActionScale(space)
        self.linear = nn.Linear(width, 2 * self.scale.size)

    def forward(self, latent: Tensor, mask: Tensor | None) -> BetaActions:
        a, b = (nn.functional.softplus(self.linear(latent)) + 1.01).chunk(2, -1)
        return BetaActions(a, b)

    def to_environment(self, action: Tensor) -> Tensor:
        return self.scale.to_environment(2 * action - 1)

    def from_environment(self, action: Tensor) -> Tensor:
        return (self.scale.to_unit(action) + 1) / 2


def build_beta(context: BuildContext, config: PPOConfig) -> Parts:
    require_spaces(context, "beta", actions=("Box",))
    network = build_actor_critic(context, config, head=BetaHead)
    update = ClippedPolicy(network, config, context.streams["update"], num_envs=context.num_envs)
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan.of(config, context))


def test_a_policy_with_another_action_head(register: Register, tmp_path: Path) -> None:
    name = register("beta-ppo", PPOConfig, build_beta, "Box")
    arch = {"net_arch": {"pi": [24], "vf": [16]}}
    settings: dict[str, Any] = {"n_steps": 64, "batch_size": 32, "seed": 0, "policy_kwargs": arch}
    model = rlsdk.make(name, env="Pendulum-v1", **settings)
    head = model.policy.head
    assert (head.linear.in_features, model.policy.value.in_features) == (24, 16), "the widths of the trunks"
    assert head.linear.weight.norm() < 0.1, "orthogonal with a small gain, like the heads of the SDK"
    before = head.linear.weight.clone()
    model.learn(128)
    assert not torch.equal(before, head.linear.weight)
    seen = np.zeros((50, 3), np.float32)
    actions, _ = model.predict(seen)
    assert (np.abs(actions) < 2).all()
    assert actions.std() > 0.1
    model.save(tmp_path / "beta")
    again = rlsdk.load(tmp_path / "beta")
    assert np.array_equal(again.predict(seen, deterministic=True)[0], model.predict(seen, deterministic=True)[0])
    twin = rlsdk.make(name, env="Pendulum-v1", **settings).learn(128)
    assert torch.equal(twin.policy.head.linear.weight, head.linear.weight)
    with pytest.raises(
        SettingsError, match=r"the action head has no effect with actor_class .* features_extractor_class"
    ):
        rlsdk.make(name, env="Pendulum-v1", n_steps=64, policy_kwargs={"actor_class": nn.Linear})


# --- a base config without a target network, and alpha without an update ---------------------------------------------


@attrs.frozen(field_transformer=without("tau", "target_update_interval", "action_noise"))
class WithoutTarget(SoftActorCriticConfig):
    """The settings of a soft actor-critic without target networks, such as CrossQ."""


class Entropic:
    """Raises the entropy of the policy, with alpha fixed in all updates but every second one."""

    def __init__(self, actor: Any, config: WithoutTarget, generator: torch.Generator) -> None:
        self.actor, self.config, self.generator = actor, config, generator
        rate = config.learning_rate(1.0)
        self.optimizer = FlatOptimizer(actor, "adam", rate)
        self.alpha = EntropyCoefficient(config.ent_coef, -1.0, rate, str(generator.device))
        self.count = 0

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        rate = self.config.learning_rate(1.0 - progress)
        noise = torch.randn(len(batch.reward), self.actor.scale.size, generator=self.generator)
        (_, log_prob), vjp = self.actor.evaluate(self.actor.encoder(batch.observation.features), noise)
        before = self.alpha.value
        if self.count % 2:
            alpha, _ = self.alpha.update(log_prob, rate)
            assert torch.equal(alpha, before), "update returns alpha before it"
        self.count += 1
        self.optimizer.zero_grad()
        vjp(torch.zeros_like(noise), (before / len(log_prob)).expand_as(log_prob))
        self.optimizer.step(rate)
        return {"train/ent_coef": self.alpha.value}

    def reconfigure(self, config: WithoutTarget) -> None:
        self.config = config

    def state_dict(self) -> Any:
        return {"optimizer": self.optimizer.state_dict(), "alpha": self.alpha.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.alpha.load_state_dict(state["alpha"])


def build_without_target(context: BuildContext, config: WithoutTarget) -> Parts:
    encoder = build_encoder(context, config.policy, config.policy_kwargs)
    actor = build_squashed_actor(encoder, [16], "relu", ActionScale(context.action_space))
    return Parts(
        policy=actor,
        algorithm=Entropic(actor, config, context.streams["update"]),
        plan=OffPolicyPlan.of(config),
        buffer=ReplayBuffer(context, config.buffer_size, config.gamma),
        behavior=UniformWarmUp(actor, context.action_space, steps=config.learning_starts),
    )


def test_a_base_config_without_some_fields(register: Register) -> None:
    names = [field.name for field in attrs.fields(WithoutTarget)]
    whole = [field.name for field in attrs.fields(SoftActorCriticConfig)]
    left_out = ["tau", "target_update_interval", "action_noise"]
    assert names == [name for name in whole if name not in left_out], "the others keep their order"
    assert set(WithoutTarget.LIVE) == set(SoftActorCriticConfig.LIVE) - set(left_out)
    assert "tau" in SoftActorCriticConfig.LIVE
    name = register("without-target", WithoutTarget, build_without_target, "Box")
    settings: dict[str, Any] = {"buffer_size": 300, "learning_starts": 8, "batch_size": 16, "seed": 0}
    with pytest.raises(SettingsError, match="tau"):
        rlsdk.make(name, env="Pendulum-v1", tau=0.1, **settings)
    model = rlsdk.make(name, env="Pendulum-v1", ent_coef="auto_0.5", **settings).learn(40)
    alpha = model.parts.algorithm.alpha
    assert alpha.value.shape == ()
    assert not alpha.value.requires_grad
    assert alpha.value != 0.5
    fixed = EntropyCoefficient(0.25, -1.0, 1e-3, "cpu")
    assert fixed.value == 0.25
    with pytest.raises(TypeError, match=r"Wrong has no fields \['tao'\], which are to be left out"):
        attrs.frozen(field_transformer=without("tao"))(type("Wrong", (OffPolicyConfig,), {}))


# --- an update around that of another algorithm ----------------------------------------------------------------------


class Curious:
    """Adds a reward for new observations, as random network distillation does, around any update."""

    def __init__(self, inner: Any, inputs: int) -> None:
        self.inner, self.bonus = inner, torch.zeros(())
        self.target, self.guess = nn.Linear(inputs, 8), nn.Linear(inputs, 8)
        self.optimizer = FlatOptimizer(self.guess, "adam", 1e-3)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def update(self, batch: Any, *, progress: float) -> Metrics:
        features = successors(batch).features
        error = (self.guess(features) - self.target(features).detach()).square().mean(-1)
        self.optimizer.zero_grad()
        torch.autograd.backward(error.mean())
        self.optimizer.step(1e-3)
        self.bonus = error.detach().mean()
        steps = replace(batch.steps, reward=batch.steps.reward + error.detach())
        return {**self.inner.update(replace(batch, steps=steps), progress=progress), "train/bonus": self.bonus}

    def state_dict(self) -> Any:
        parts: Mapping[str, Any] = {"inner": self.inner, "target": self.target, "guess": self.guess}
        return {name: part.state_dict() for name, part in parts.items()}

    def load_state_dict(self, state: Any) -> None:
        parts: Mapping[str, Any] = {"inner": self.inner, "target": self.target, "guess": self.guess}
        for name, part in parts.items():
            part.load_state_dict(state[name])


@pytest.mark.parametrize("inner", ["acer", "ppo"])
def test_curiosity_around_another_algorithm(inner: str, register: Register) -> None:
    """ACER updates with sequences from its replay buffer, PPO with rollouts."""

    def build(context: BuildContext, config: Any) -> Parts:
        parts = load(inner).build(context, config)
        return replace(parts, algorithm=Curious(parts.algorithm, 4))

    config = ACERConfig if inner == "acer" else PPOConfig
    name = register(f"curious-{inner}", config, build, "Discrete")
    more: dict[str, Any] = {"replay_start": 32} if inner == "acer" else {"batch_size": 16}
    model = rlsdk.make(name, env="CartPole-v1", n_steps=16, seed=0, **more).learn(128)
    assert 0 < model.parts.algorithm.bonus < 5


# --- the last reward in an observation -------------------------------------------------------------------------------


class LastReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The observation ends with the last reward, as in RL2 and decision transformers."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        box = env.observation_space
        low, high = np.append(box.low, -np.inf), np.append(box.high, np.inf)
        self.observation_space = spaces.Box(low.astype(np.float32), high.astype(np.float32))

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        seen, info = self.env.reset(**given)
        return np.append(seen, 0.0).astype(np.float32), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        return np.append(seen, reward).astype(np.float32), reward, terminated, truncated, info


def test_the_last_reward_is_observed_in_training_and_in_files(tmp_path: Path) -> None:
    place = f"CartPole-v1?wrapper={__name__}:LastReward"
    more: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "policy_kwargs": {"lstm_hidden_size": 8}, "seed": 0}
    model = rlsdk.make("recurrent-ppo", env=place, **more)
    model.learn(32)
    assert model.observation_space.shape == (5,)
    model.save(tmp_path / "agent")
    assert rlsdk.load(tmp_path / "agent", env=place).observation_space.shape == (5,)
