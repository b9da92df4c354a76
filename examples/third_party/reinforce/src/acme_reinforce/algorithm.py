"""The update, and `build`, which assembles the parts of an agent."""

from __future__ import annotations

import torch
from torch import Tensor

from acme_reinforce.config import ReinforceConfig
from acme_reinforce.policy import SoftmaxPolicy
from rlsdk.interfaces import BuildContext, Parts, State, require_spaces
from rlsdk.records import Metrics, Rollout
from rlsdk.spaces import Discrete
from rlsdk.training import OnPolicyPlan
from rlsdk.tree import map_tensors
from rlsdk.updates import FlatOptimizer


def returns_to_go(reward: Tensor, ended: Tensor, gamma: float) -> Tensor:
    """The discounted return from each step to the end of its episode, float [T, B]; 0 in episodes that still run."""
    result, later, known = torch.zeros_like(reward), torch.zeros_like(reward[0]), torch.zeros_like(ended[0])
    for t in reversed(range(len(reward))):
        known = known | ended[t]
        later = reward[t] + gamma * later.masked_fill(ended[t], 0.0)
        result[t] = later.masked_fill(~known, 0.0)
    return result


class Reinforce:
    """REINFORCE (Williams 1992): follows the gradient of log pi(a|s) times the return after the action."""

    def __init__(self, policy: SoftmaxPolicy, config: ReinforceConfig) -> None:
        self.policy, self.config = policy, config
        self.optimizer = FlatOptimizer(policy, "adam", config.learning_rate)

    def update(self, batch: Rollout[tuple[()], tuple[()]], *, progress: float) -> Metrics:
        """Take one gradient step on a rollout [T, B]."""
        steps = batch.steps
        ended = steps.terminated | steps.truncated
        gain = returns_to_go(steps.reward, ended, self.config.gamma).flatten()
        complete = ended.flip(0).cumsum(0).flip(0).flatten().bool() & steps.valid.flatten()
        weight = complete / complete.sum().clamp(min=1)
        gain = gain - (gain * weight).sum()  # the mean return is the baseline
        advantage = weight * gain / ((weight * gain.square()).sum().sqrt() + 1e-8)
        rows = map_tensors(lambda leaf: leaf.flatten(0, 1), steps.observation)
        log_prob = self.policy.distribution(rows).log_prob(steps.action.flatten().long() - self.policy.start)
        loss = -(log_prob * advantage).sum()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step(self.config.learning_rate)
        return {"train/loss": loss.detach(), "train/complete_steps": complete.sum().float()}

    def state_dict(self) -> State:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


def build(context: BuildContext, config: ReinforceConfig) -> Parts:
    """Build the parts of an agent."""
    observations = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
    require_spaces(context, "REINFORCE", actions=("Discrete",), observations=observations)
    assert isinstance(context.action_space, Discrete)
    policy = SoftmaxPolicy(context.observation_space, context.action_space, config.hidden).to(context.device)
    return Parts(policy=policy, algorithm=Reinforce(policy, config), plan=OnPolicyPlan(config.n_steps))
