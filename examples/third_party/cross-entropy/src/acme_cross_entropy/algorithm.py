"""The search, which proposes candidates and learns from their scores, and `build`, which assembles the parts."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from acme_cross_entropy.config import CrossEntropyConfig
from rlsdk.interfaces import BuildContext, Parts, State, require_spaces
from rlsdk.networks import flatten_parameters
from rlsdk.records import Metrics
from rlsdk.settings import NetworkConfig
from rlsdk_ars import PopulationPlan, Scored, SearchPolicy, build_search_policy

SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


class CrossEntropy:
    """The cross-entropy method (Rubinstein 1999), with the extra noise of Szita and Loerincz 2006."""

    def __init__(self, policy: SearchPolicy, config: CrossEntropyConfig, generator: Generator) -> None:
        self.config, self.generator = config, generator
        self.mean, _ = flatten_parameters(policy.parameters())  # a view of the parameters of the policy
        self.std = torch.full_like(self.mean, config.first_std)

    @torch.no_grad()
    def propose(self, *, progress: float) -> Tensor:
        """Draw candidates [P, D] around the mean."""
        shape = self.config.candidates, len(self.mean)
        return self.mean + self.std * torch.randn(shape, generator=self.generator, device=self.mean.device)

    @torch.no_grad()
    def update(self, batch: Scored, *, progress: float) -> Metrics:
        """Fit the mean and the standard deviation to the best candidates."""
        best = batch.parameters[batch.score.topk(min(self.config.elites, len(batch.score))).indices]
        self.mean.copy_(best.mean(0))
        self.std = best.std(0, correction=0) + self.config.extra_std * (1.0 - progress)
        return {"train/score_mean": batch.score.mean(), "train/std": self.std.mean()}

    def state_dict(self) -> State:
        """The standard deviations. The mean is stored with the policy."""
        return {"search": {"std": self.std.clone()}}

    def load_state_dict(self, state: State, /) -> None:
        self.std = state["search"]["std"].to(self.mean)


def build(context: BuildContext, config: CrossEntropyConfig) -> Parts:
    """Build the parts of an agent."""
    require_spaces(context, "the cross-entropy method", actions=SPACES, observations=SPACES)
    policy, make_act = build_search_policy(context, NetworkConfig(), hidden=())
    return Parts(
        policy=policy,
        algorithm=CrossEntropy(policy, config, context.streams["update"]),
        plan=PopulationPlan(make_act, config.n_eval_episodes),
    )
