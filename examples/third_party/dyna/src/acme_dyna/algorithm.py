"""The update: Q-learning from real steps, training of the model on them, then Q-learning from imagined steps."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor

from acme_dyna.config import DynaConfig
from acme_dyna.memory import MoveMemory, Moves
from acme_dyna.model import WorldModel
from rlsdk.interfaces import BuildContext, Parts, State, require_spaces
from rlsdk.networks import build_discrete_value_policy
from rlsdk.records import Metrics, Observation, Transitions
from rlsdk.spaces import Box, Discrete
from rlsdk.training import OffPolicyPlan
from rlsdk.updates import FlatOptimizer, QLearning


def squared_error(values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (mean of (v - y)^2 / 2, its gradient with respect to v) for values v and targets y, [choices, N, 1]."""
    error = (values - target) * (1.0 if weight is None else weight.view(1, -1, 1))
    return (error * (values - target)).mean() / 2, error / values.numel()


class Dyna:
    """Dyna (Sutton 1991, doi:10.1145/122344.122377) learns from real steps, learns a model, and plans with it."""

    def __init__(
        self, learner: QLearning[DynaConfig], model: WorldModel, context: BuildContext, generator: Generator
    ) -> None:
        self.learner, self.model, self.context, self.generator = learner, model, context, generator
        self.optimizer = FlatOptimizer(model, "adam", learner.config.model_learning_rate)

    def reconfigure(self, config: DynaConfig) -> None:
        """Use new settings from the next round on."""
        self.learner.reconfigure(config)

    def collected(self, env_steps: int, progress: float) -> None:
        """Lower the exploration rate and update the target network, after each round."""
        self.learner.collected(env_steps, progress)

    def update(self, batch: Moves, *, progress: float) -> Metrics:
        """Learn from N real steps, then from imagined steps."""
        moves = self._normalized(batch)
        metrics = dict(self.learner.update(self._transitions(moves), progress=progress))
        self.optimizer.zero_grad()
        loss = self.model.loss(moves)
        torch.autograd.backward(loss)
        self.optimizer.step(self.learner.config.model_learning_rate)
        for _ in range(self.learner.config.planning_steps):
            action = torch.randint(
                self.model.actions, moves.action.shape, generator=self.generator, device=moves.action.device
            )
            imagined = self.model.imagine(moves.observation, action)
            self.learner.update(self._transitions(imagined), progress=progress)
        return {**metrics, "train/model_loss": loss.detach()}

    def _normalized(self, moves: Moves) -> Moves:
        """Normalize observations and rewards according to the setting `normalize`. The memory stores raw ones."""
        return replace(
            moves,
            observation=self.context.observation_normalizer(moves.observation),
            next_observation=self.context.observation_normalizer(moves.next_observation),
            reward=self.context.reward_normalizer(moves.reward),
            action=moves.action - self._first_action,
        )

    @property
    def _first_action(self) -> int:
        space = self.context.action_space
        assert isinstance(space, Discrete)
        return space.start

    def _transitions(self, moves: Moves) -> Transitions:
        first = torch.zeros_like(moves.terminated)
        return Transitions(
            Observation(moves.observation, first),
            moves.action + self._first_action,
            moves.reward,
            self.learner.config.gamma * (~moves.terminated).float(),
            Observation(moves.next_observation, first),
            torch.arange(len(moves.action)),
        )

    def state_dict(self) -> State:
        """The state of Q-learning, of the model and of its optimizer."""
        model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        return {"learner": self.learner.state_dict(), "model": model, "model_optimizer": optimizer}

    def load_state_dict(self, state: State, /) -> None:
        self.learner.load_state_dict(state["learner"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["model_optimizer"])


def build(context: BuildContext, config: DynaConfig) -> Parts:
    """Build the parts of an agent."""
    require_spaces(context, "Dyna", actions=("Discrete",), observations=("Box",))
    seen, actions = context.observation_space, context.action_space
    assert isinstance(seen, Box)
    assert isinstance(actions, Discrete)
    features = math.prod(seen.shape)
    policy = build_discrete_value_policy(context, config)
    learner = QLearning(policy, config, squared_error, num_envs=context.num_envs)
    model = WorldModel(features, actions.n, config.model_width).to(context.device)
    return Parts(
        policy=policy,
        algorithm=Dyna(learner, model, context, context.streams["planning"]),
        plan=OffPolicyPlan.of(config),
        buffer=MoveMemory(config.buffer_size, features, context.device),
    )
