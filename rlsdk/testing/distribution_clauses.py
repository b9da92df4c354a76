"""What a distribution promises. Policies that have one offer it as `distribution_of(observation)`."""

from __future__ import annotations

from typing import Any

import torch

from rlsdk.interfaces import Distribution
from rlsdk.testing.acting import observations
from rlsdk.testing.kit import clause, require
from rlsdk.testing.not_applicable import NotApplicable
from rlsdk.testing.subject import Subject

ROWS, SAMPLES = 4, 4000


def _distribution(subject: Subject, seed: int) -> Any:
    agent = subject.agent(seed=seed)
    make = getattr(agent.parts.policy, "distribution_of", None)
    if make is None:
        raise NotApplicable("the policy offers no distribution_of(observation)")
    with torch.no_grad():
        return make(observations(agent, ROWS, seed=4))


@clause(
    "distribution.shapes",
    "log_prob, entropy and KL have the batch shape; sample and mode are alike.",
    "log_prob(), entropy() and kl_divergence(): sum over the axis of the action, so that results are [N]",
)
def shapes(subject: Subject) -> None:
    distribution = _distribution(subject, 1)
    require(isinstance(distribution, Distribution), f"{type(distribution).__name__} lacks methods of Distribution")
    sample = distribution.sample(torch.Generator().manual_seed(1))
    require(sample.shape == distribution.mode().shape, f"sample {sample.shape}, mode {distribution.mode().shape}")
    results = {
        "log_prob": distribution.log_prob(sample),
        "entropy": distribution.entropy(),
        "kl_divergence": distribution.kl_divergence(distribution),
    }
    wrong = {name: tuple(value.shape) for name, value in results.items() if value.shape != (ROWS,)}
    require(not wrong, f"expected shape ({ROWS},), got {wrong}")


@clause(
    "distribution.entropy-is-mean-surprise",
    "entropy() is the mean of -log_prob over samples (5 standard errors).",
    "log_prob() and entropy(): both of the distribution that sample() draws from, after squashing, scaling and masks",
)
def entropy_is_mean_surprise(subject: Subject) -> None:
    distribution, generator = _distribution(subject, 1), torch.Generator().manual_seed(2)
    surprise = torch.stack([-distribution.log_prob(distribution.sample(generator)) for _ in range(SAMPLES)])
    error = surprise.std(0) / SAMPLES**0.5
    gap = (surprise.mean(0) - distribution.entropy()).abs()
    require(
        bool((gap <= 5 * error + 1e-3).all()), f"entropy {distribution.entropy()}, mean surprise {surprise.mean(0)}"
    )


@clause(
    "distribution.kl",
    "KL(p || p) = 0, and KL(p || q) is the mean of log p - log q over samples of p (5 standard errors).",
    "kl_divergence(other): return KL(self || other), the expectation under self, in this order",
)
def kl(subject: Subject) -> None:
    p, q, generator = _distribution(subject, 1), _distribution(subject, 2), torch.Generator().manual_seed(3)
    require(torch.allclose(p.kl_divergence(p), torch.zeros(ROWS), atol=1e-6), f"KL(p || p) = {p.kl_divergence(p)}")
    draws = [p.sample(generator) for _ in range(SAMPLES)]
    ratio = torch.stack([p.log_prob(x) - q.log_prob(x) for x in draws])
    gap, error = (ratio.mean(0) - p.kl_divergence(q)).abs(), ratio.std(0) / SAMPLES**0.5
    require(bool((gap <= 5 * error + 1e-3).all()), f"KL {p.kl_divergence(q)}, estimate {ratio.mean(0)}")
