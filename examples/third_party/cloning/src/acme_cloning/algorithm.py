"""The update, and `build`, which assembles the parts of an agent."""

from __future__ import annotations

import torch

from acme_cloning.config import CloningConfig
from acme_cloning.policy import CloningPolicy
from rlsdk.interfaces import BuildContext, Parts, State, require_spaces
from rlsdk.records import Metrics, Transitions
from rlsdk.spaces import Box, Discrete
from rlsdk.updates import FlatOptimizer
from rlsdk_datasets import OfflinePlan, RecordedTransitions

OBSERVATIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


class Cloning:
    """Maximizes the likelihood of the recorded actions (Pomerleau 1989)."""

    def __init__(self, policy: CloningPolicy, config: CloningConfig, recorded: RecordedTransitions | None) -> None:
        self.policy, self.config, self.recorded = policy, config, recorded
        self.optimizer = FlatOptimizer(policy, "adam", config.learning_rate)

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        """One gradient step: maximize the likelihood of the recorded actions of N transitions."""
        loss = -self.policy.log_prob(batch.observation, batch.action).mean()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step(self.config.learning_rate)
        return {"train/loss": loss.detach(), **self._held_out(len(batch.reward))}

    def _held_out(self, size: int) -> Metrics:
        """The loss of up to `size` transitions of held-out episodes; empty if there are none."""
        episodes = None if self.recorded is None else self.recorded.held_out
        if episodes is None:
            return {}
        rows = episodes.transitions(torch.arange(min(size, episodes.steps)), gamma=1.0)
        with torch.no_grad():
            return {"train/held_out_loss": -self.policy.log_prob(rows.observation, rows.action).mean()}

    def state_dict(self) -> State:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


def build(context: BuildContext, config: CloningConfig) -> Parts:
    """Build the parts of an agent."""
    require_spaces(context, "Behavior cloning", actions=("Discrete", "Box"), observations=OBSERVATIONS)
    assert isinstance(context.action_space, Discrete | Box)
    policy = CloningPolicy(context.observation_space, context.action_space, config.hidden).to(context.device)
    recorded = config.dataset and RecordedTransitions(config.dataset, context, share=1.0 - config.held_out)
    algorithm = Cloning(policy, config, recorded)
    return Parts(policy=policy, algorithm=algorithm, plan=OfflinePlan(config.batch_size), buffer=recorded)
