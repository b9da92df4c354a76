"""Propose, learn from the scores, and the function that puts the parts together."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from acme_cross_entropy.config import CrossEntropyConfig
from rlsdk.interfaces import BuildContext, Parts, State, require_spaces
from rlsdk.networks import SearchPolicy, build_search_policy, flatten_parameters
from rlsdk.records import Metrics, Scored
from rlsdk.settings.networks import NetworkConfig
from rlsdk.training import PopulationPlan

SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


class CrossEntropy:
    """Rubinstein 1999, with the extra noise of Szita and Loerincz 2006."""

    def __init__(self, policy: SearchPolicy, config: CrossEntropyConfig, generator: Generator) -> None:
        self.config, self.generator = config, generator
        self.mean, _ = flatten_parameters(policy.parameters())  # the policy's own memory: the mean is what acts
        self.std = torch.full_like(self.mean, config.first_std)

    @torch.no_grad()
    def propose(self, *, progress: float) -> Tensor:
        """Candidates [P, D]."""
        shape = self.config.candidates, len(self.mean)
        return self.mean + self.std * torch.randn(shape, generator=self.generator, device=self.mean.device)

    @torch.no_grad()
    def update(self, batch: Scored, *, progress: float) -> Metrics:
        """Fit mean and deviation to the best."""
        best = batch.parameters[batch.score.topk(min(self.config.elites, len(batch.score))).indices]
        self.mean.copy_(best.mean(0))
        self.std = best.std(0, correction=0) + self.config.extra_std * (1.0 - progress)
        return {"train/score_mean": batch.score.mean(), "train/std": self.std.mean()}

    def state_dict(self) -> State:
        """The deviations; the mean is the policy's."""
        return {"search": {"std": self.std.clone()}}

    def load_state_dict(self, state: State, /) -> None:
        self.std = state["search"]["std"].to(self.mean)


def build(context: BuildContext, config: CrossEntropyConfig) -> Parts:
    """The only place that chooses the parts."""
    require_spaces(context, "the cross-entropy method", actions=SPACES, observations=SPACES)
    policy, make_act = build_search_policy(context, NetworkConfig(), hidden=())
    return Parts(
        policy=policy,
        algorithm=CrossEntropy(policy, config, context.streams["update"]),
        plan=PopulationPlan(make_act, config.n_eval_episodes),
    )
