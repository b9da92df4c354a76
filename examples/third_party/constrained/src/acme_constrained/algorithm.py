"""The update, and `build`, which assembles the parts of an agent."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from acme_constrained.config import LagrangianConfig
from rlsdk.interfaces import BuildContext, Parts, State, require_spaces
from rlsdk.networks import ActorCritic, build_actor_critic
from rlsdk.records import Metrics, Rollout, StepData
from rlsdk.training import OnPolicyPlan
from rlsdk.updates import ClippedPolicy

ACTIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
COST = "cost"


class LagrangianPPO:
    """PPO on `(reward - multiplier * cost) / (1 + multiplier)`.

    The multiplier changes in proportion to the mean cost of episodes above the limit, and is never negative (Tessler et al.
    2018, arXiv:1805.11074)."""

    def __init__(self, network: ActorCritic, config: LagrangianConfig, generator: Generator, num_envs: int) -> None:
        self.config = config
        self.ppo = ClippedPolicy(network, config, generator, num_envs=num_envs)
        self.multiplier = torch.tensor(config.initial_multiplier)
        self.running = torch.zeros(num_envs)
        """The cost so far of the episode that runs in each environment, float32 [B]."""

    @property
    def updates(self) -> int:
        """The number of epochs begun so far."""
        return self.ppo.updates

    def update(self, batch: Rollout[object, object], *, progress: float) -> Metrics:
        """Learn from a rollout [T, B] whose steps have `info["cost"]`."""
        steps = batch.steps
        costs = self._episode_costs(steps)
        if len(costs):
            excess = costs.mean() - self.config.cost_limit
            self.multiplier = (self.multiplier + self.config.multiplier_rate * excess).clamp(min=0.0)
        weight = self.multiplier.to(steps.reward.device)
        reward = (steps.reward - weight * steps.info[COST]) / (1.0 + weight)
        metrics = self.ppo.update(replace(batch, steps=replace(steps, reward=reward)), progress=progress)
        seen = {"train/episode_cost": costs.mean()} if len(costs) else {}
        return {**metrics, **seen, "train/multiplier": self.multiplier}

    def _episode_costs(self, steps: StepData[object]) -> Tensor:
        """The cost of each episode that ended in these steps [T, B], float32 [number of episodes]."""
        cost, first = steps.info[COST].cpu(), steps.observation.is_first.cpu()
        ended, found = (steps.terminated | steps.truncated).cpu(), list[Tensor]()
        for t in range(len(cost)):
            self.running = self.running.masked_fill(first[t], 0.0) + cost[t]
            found.append(self.running[ended[t]])
        return torch.cat(found)

    def state_dict(self) -> State:
        return {"ppo": self.ppo.state_dict(), "multiplier": self.multiplier, "running": self.running}

    def load_state_dict(self, state: State, /) -> None:
        self.ppo.load_state_dict(state["ppo"])
        self.multiplier = state["multiplier"].clone()
        if state["running"].shape == self.running.shape:  # otherwise the environments are new, and begin episodes
            self.running = state["running"].clone()


def build(context: BuildContext, config: LagrangianConfig) -> Parts:
    """Build the parts of an agent."""
    require_spaces(context, "PPO-Lagrangian", actions=ACTIONS, observations=ACTIONS)
    network = build_actor_critic(context, config)
    update = LagrangianPPO(network, config, context.streams["update"], context.num_envs)
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan.of(config, context))
