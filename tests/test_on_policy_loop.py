"""The on-policy loop with the smallest on-policy algorithm there is: REINFORCE on the identity task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import torch
from torch import nn

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.environments.toy import IdentityEnv
from rlsdk.evaluate import evaluate_policy
from rlsdk.networks import FlattenEncoder
from rlsdk.parts import Facts, OnPolicyPlan, Parts, require_spaces
from rlsdk.records import Act, Rollout
from rlsdk.registry import AlgorithmSpec, Manifest, register, unregister
from rlsdk.settings import AgentConfig, described, in_range
from rlsdk.testing import run_checks
from rlsdk.updates import FlatOptimizer


@attrs.frozen
class Config(AgentConfig):
    n_steps: int = attrs.field(default=32, validator=in_range(1), metadata=described("steps per rollout"))
    rate: float = attrs.field(default=0.1, validator=in_range(0), metadata=described("step size"))


class Softmax(nn.Module):
    """A linear softmax policy."""

    def __init__(self, facts: Facts) -> None:
        super().__init__()
        self.encoder = FlattenEncoder(facts.observation_space)
        self.linear = nn.Linear(self.encoder.features_dim, facts.action_space.n)  # type: ignore[union-attr]

    def log_probabilities(self, features: Any) -> torch.Tensor:
        return self.linear(self.encoder(features)).log_softmax(-1)

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(self, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Act[Any, Any]:
        scores = self.log_probabilities(observation.features)
        action = scores.argmax(-1) if deterministic else torch.multinomial(scores.exp(), 1, generator=generator)[:, 0]
        return Act(action, carry, ())


class Reinforce:
    """Rewards of the identity task depend on the action of the same step only, so no return is needed."""

    def __init__(self, policy: Softmax, rate: float) -> None:
        self.policy, self.rate = policy, rate
        self.optimizer = FlatOptimizer(policy.parameters(), "adam", rate)
        self.shapes: list[tuple[int, ...]] = []

    def update(self, batch: Rollout[Any, Any], *, progress: float) -> dict[str, torch.Tensor]:
        steps = batch.steps
        self.shapes.append(tuple(steps.reward.shape))
        scores = self.policy.log_probabilities(steps.observation.features.flatten(0, 1))
        chosen = scores.gather(-1, steps.action.flatten()[:, None])[:, 0]
        loss = -(chosen * (steps.reward.flatten() - steps.reward.mean())).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step(self.rate)
        return {"train/loss": loss.detach()}

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Any, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


def build(facts: Facts, config: Config) -> Parts:
    require_spaces(facts, "reinforce", actions=("Discrete",), observations=("Box", "Discrete"))
    policy = Softmax(facts)
    return Parts(policy=policy, algorithm=Reinforce(policy, config.rate), plan=OnPolicyPlan(config.n_steps))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    facts: dict[str, Any] = {"id": "reinforce", "family": "on-policy", "policies": ("MlpPolicy",)}
    words = {"title": "REINFORCE", "summary": "for tests", "sdk": ">=0.1", "actions": ("Discrete",)}
    register(
        AlgorithmSpec(config_type=Config, build=build, **facts),
        Manifest(**facts, **words, observations=("Box", "Discrete")),
    )
    yield
    unregister("reinforce")


def test_it_learns_and_counts() -> None:
    env = make_vec_env(lambda: IdentityEnv(4, episode_length=20), 3)
    agent = rlsdk.make("reinforce", env=env, seed=0)
    reports: list[Any] = []
    agent.learn(3000, callback=lambda scope, _: reports.append(scope["report"]))
    assert set(agent.parts.algorithm.shapes) == {(32, 3)}  # type: ignore[attr-defined]
    assert [r.env_steps for r in reports[:3]] == [96, 192, 288]
    assert [r.updates for r in reports[:3]] == [1, 2, 3]
    assert agent.num_timesteps == 3072
    assert evaluate_policy(agent, IdentityEnv(4), 3)[0] == 100.0


def test_logs_count_rollouts(capsys: pytest.CaptureFixture[str]) -> None:
    agent = rlsdk.make("reinforce", env=IdentityEnv(4, episode_length=20), seed=0, verbose=1)
    agent.learn(32 * 6, log_interval=2)
    assert capsys.readouterr().out.count("total_timesteps") == 3


def test_it_saves_loads_and_keeps_the_contracts() -> None:
    broken = [o for o in run_checks("reinforce") if o.status == "failed"]
    assert broken == []
