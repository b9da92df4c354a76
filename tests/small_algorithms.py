"""A minimal on-policy algorithm, for tests of the code around algorithms."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import nn

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import FlattenEncoder
from rlsdk.records import Act, Rollout
from rlsdk.registry import AlgorithmSpec, Manifest
from rlsdk.registry.discovery import register
from rlsdk.settings import AgentConfig, described, in_range
from rlsdk.training import OnPolicyPlan
from rlsdk.tree import map_tensors
from rlsdk.updates import FlatOptimizer


@attrs.frozen
class Config(AgentConfig):
    n_steps: int = attrs.field(default=32, validator=in_range(1), metadata=described("steps per rollout"))
    rate: float = attrs.field(default=0.1, validator=in_range(0), metadata=described("step size"))
    gamma: float = attrs.field(default=0.99, validator=in_range(0, 1), metadata=described("discount"))


class Softmax(nn.Module):
    """A linear softmax policy; it respects masks."""

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        self.encoder = FlattenEncoder(context.observation_space)
        self.linear = nn.Linear(self.encoder.features_dim, context.action_space.n)  # type: ignore[union-attr]

    def log_probabilities(self, observation: Any) -> torch.Tensor:
        scores = self.linear(self.encoder(observation.features))
        if observation.action_mask is not None:
            scores = scores.masked_fill(~observation.action_mask, -1e9)
        return scores.log_softmax(-1)

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(self, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Act[Any, Any]:
        scores = self.log_probabilities(observation)
        action = scores.argmax(-1) if deterministic else torch.multinomial(scores.exp(), 1, generator=generator)[:, 0]
        return Act(action, carry, ())


class Reinforce:
    """REINFORCE with rewards instead of returns: a reward of the identity task depends only on the action of its step."""

    def __init__(self, policy: Softmax, rate: float) -> None:
        self.policy, self.rate = policy, rate
        self.optimizer = FlatOptimizer(policy.parameters(), "adam", rate)
        self.rollouts: list[Rollout[Any, Any]] = []

    def update(self, batch: Rollout[Any, Any], *, progress: float) -> dict[str, torch.Tensor]:
        steps = batch.steps
        self.rollouts.append(batch)
        rows = map_tensors(lambda leaf: leaf.flatten(0, 1), steps.observation)
        scores = self.policy.log_probabilities(rows)
        chosen = scores.gather(-1, steps.action.flatten()[:, None])[:, 0]
        valid = steps.valid.flatten()
        reward = steps.reward.flatten()[valid]
        loss = -(chosen[valid] * (reward - reward.mean())).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step(self.rate)
        return {"train/loss": loss.detach()}

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Any, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


def build(context: BuildContext, config: Config) -> Parts:
    require_spaces(context, "reinforce", actions=("Discrete",), observations=("Box", "Discrete", "MultiDiscrete"))
    policy = Softmax(context)
    return Parts(policy=policy, algorithm=Reinforce(policy, config.rate), plan=OnPolicyPlan(config.n_steps))


def register_reinforce(**changes: Any) -> None:
    """Register the algorithm as `reinforce`."""
    context: dict[str, Any] = {"id": "reinforce", "family": "on-policy", "policies": ("MlpPolicy",)}
    words = {"title": "REINFORCE", "summary": "for tests", "sdk": ">=0.1", "actions": ("Discrete",)}
    spaces = {"observations": ("Box", "Discrete", "MultiDiscrete")}
    register(
        AlgorithmSpec(config_type=Config, build=build, **context, **changes), Manifest(**context, **words, **spaces)
    )
