"""The policy, the update, and what puts them together."""

from __future__ import annotations

import copy

import torch
from rlsdk.distributions import Categorical
from rlsdk.interfaces import BuildContext, Parts, State, require_spaces
from rlsdk.networks import mlp
from rlsdk.records import Act, Metrics, Observation
from rlsdk.spaces import Box, Discrete
from rlsdk.training import OffPolicyPlan
from rlsdk.updates import FlatOptimizer
from torch import Generator, Tensor, nn

from acme_recall.config import RecallConfig
from acme_recall.memory import Memory, Steps


class SoftmaxOfValues(nn.Module):
    """Values of actions; acting draws from their softmax."""

    def __init__(self, features: int, actions: Discrete, config: RecallConfig) -> None:
        super().__init__()
        hidden = config.hidden
        self.layers = nn.Sequential(*mlp(features, (hidden, hidden), "relu"), nn.Linear(hidden, actions.n))
        self.features, self.start, self.temperature = features, actions.start, config.temperature

    def values(self, seen: Tensor) -> Tensor:
        """Of observations [N, F], float [N, A]."""
        found: Tensor = self.layers(seen)
        return found

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        seen = observation.features.float().reshape(-1, self.features)
        chosen = Categorical.of(self.values(seen) / self.temperature, observation.action_mask)
        return Act((chosen.mode() if deterministic else chosen.sample(generator)) + self.start, (), ())


class Learner:
    """Q-learning with a target network that follows slowly. Source: Lillicrap et al. 2015, arXiv:1509.02971, section 3."""

    def __init__(self, policy: SoftmaxOfValues, context: BuildContext, config: RecallConfig) -> None:
        self.policy, self.context, self.config = policy, context, config
        self.target = copy.deepcopy(policy).requires_grad_(False)
        self.optimizer = FlatOptimizer(policy, "adam", config.learning_rate(1.0))

    def update(self, batch: Steps, *, progress: float) -> Metrics:
        """One gradient step."""
        config, normalized = self.config, self.context.observation_normalizer
        with torch.no_grad():
            best = self.target.values(normalized(batch.following)).amax(-1)
            wanted = self.context.reward_normalizer(batch.reward) + config.gamma * batch.goes_on * best
        action = (batch.action - self.policy.start).unsqueeze(-1)
        value = self.policy.values(normalized(batch.seen)).gather(-1, action).squeeze(-1)
        loss = (value - wanted).square().mean()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step(config.learning_rate(1.0 - progress))
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.policy.parameters(), strict=True):
                old.lerp_(new, config.tau)
        return {"train/loss": loss.detach()}

    def reconfigure(self, config: RecallConfig) -> None:
        """Take over settings that were assigned."""
        self.config, self.policy.temperature = config, config.temperature

    def state_dict(self) -> State:
        return {"optimizer": self.optimizer.state_dict(), "target": self.target.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.target.load_state_dict(state["target"])


def build(context: BuildContext, config: RecallConfig) -> Parts:
    """The parts of one agent."""
    require_spaces(context, "Recall", actions=("Discrete",), observations=("Box", "Discrete"))
    seen, actions = context.observation_space, context.action_space
    assert isinstance(seen, Box | Discrete)
    assert isinstance(actions, Discrete)
    features = int(torch.tensor(seen.shape).prod()) if isinstance(seen, Box) else 1
    policy = SoftmaxOfValues(features, actions, config).to(context.device)
    return Parts(
        policy=policy,
        algorithm=Learner(policy, context, config),
        plan=OffPolicyPlan(
            train_every=config.train_freq,
            gradient_steps=1,
            batch_size=config.batch_size,
            learning_starts=config.learning_starts,
        ),
        buffer=Memory(config.buffer_size, features, context.device),
    )
