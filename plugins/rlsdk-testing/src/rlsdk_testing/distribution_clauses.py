"""Clauses about distributions. A policy that has a distribution returns it from `distribution_of(observation)`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from rlsdk.agent import Agent
from rlsdk.interfaces import Distribution
from rlsdk.records import Observation
from rlsdk.spaces import choices_of
from rlsdk.tree import leaves, map_tensors
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.acting import observations, random_masks
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import ACTIONS, Subject

ROWS, SAMPLES = 4, 4000
DENSITY = 0.02
"""The tolerance between two log-densities. The density of a squashed float32 action is computed from a rounded inverse."""
NOISE = 0.15
"""The standard deviation of noise that is added to the parameters, because new networks have nearly equal distributions."""


def _distributions(subject: Subject, seed: int, copies: int = 1) -> Iterator[tuple[str, Any]]:
    """Yield (kind, distribution) for every kind of action.

    The distribution has `ROWS * copies` rows; each row is repeated `copies` times. The observations are always the same,
    and `seed` determines the parameters.
    """
    for kind in subject.manifest.actions:
        agent = subject.agent(AnySpaceEnv(subject.seen, ACTIONS[kind]), seed=seed)
        make = getattr(agent.parts.policy, "distribution_of", None)
        if make is None:
            raise NotApplicable("the policy offers no distribution_of(observation)")
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in agent.policy.parameters():
                parameter.add_(NOISE * torch.randn(parameter.shape, generator=generator))
            seen = _observations(subject, agent)
            distribution = make(map_tensors(lambda leaf: leaf.repeat_interleave(copies, 0), seen))
        yield kind, distribution  # outside of no_grad(), which would stay active in the caller


def _observations(subject: Subject, agent: Agent) -> Observation:
    """Return `ROWS` observations, with masks if the algorithm uses them."""
    seen, space = observations(agent, ROWS, seed=4), agent.context.action_space
    if subject.spec.action_masks == "ignored" or not choices_of(space):
        return seen
    return replace(seen, action_mask=random_masks(space, ROWS, seed=4))


@clause(
    "distribution.shapes",
    "log_prob, entropy and KL divergence have the shape of the batch. sample and mode have equal shapes, for"
    " every kind of action.",
    "log_prob(), entropy() and kl_divergence(): sum over the axis of the action, so that results are [N].",
)
def shapes(subject: Subject) -> None:
    for kind, distribution in _distributions(subject, 1):
        require(isinstance(distribution, Distribution), f"{type(distribution).__name__} lacks methods of Distribution")
        sample = distribution.sample(torch.Generator().manual_seed(1))
        drawn, mode = ([tuple(leaf.shape) for leaf in leaves(each)] for each in (sample, distribution.mode()))
        require(drawn == mode, f"{kind} actions: samples have shape {drawn}, modes {mode}")
        results = {
            "log_prob": distribution.log_prob(sample),
            "entropy": distribution.entropy(),
            "kl_divergence": distribution.kl_divergence(distribution),
        }
        wrong = {name: tuple(value.shape) for name, value in results.items() if value.shape != (ROWS,)}
        require(not wrong, f"{kind} actions: expected shape ({ROWS},), got {wrong}")


def _require_mean(what: str, stated: torch.Tensor, samples: torch.Tensor) -> None:
    """Check that `stated` [ROWS * SAMPLES] is the mean of `samples` [ROWS * SAMPLES] over the `SAMPLES` copies of a row."""
    stated, samples = stated.reshape(ROWS, SAMPLES)[:, 0], samples.reshape(ROWS, SAMPLES)
    mean, error = samples.mean(1), samples.std(1) / SAMPLES**0.5
    close = bool(((mean - stated).abs() <= 5 * error + 1e-3).all())
    require(close, f"{what} is {stated.tolist()}, the mean over {SAMPLES} samples {mean.tolist()}")


@clause(
    "distribution.entropy-is-mean-surprise",
    "entropy() equals the mean of -log_prob over samples (within 5 standard errors), for every kind of action.",
    "log_prob() and entropy(): compute both for the distribution that sample() draws from, after squashing,"
    " scaling and masks.",
)
def entropy_is_mean_surprise(subject: Subject) -> None:
    for kind, distribution in _distributions(subject, 1, SAMPLES):
        surprise = -distribution.log_prob(distribution.sample(torch.Generator().manual_seed(2)))
        _require_mean(f"{kind} actions: entropy", distribution.entropy(), surprise)


@clause(
    "distribution.kl",
    "KL(p || p) = 0, and KL(p || q) equals the mean of log p - log q over samples of p (within 5 standard"
    " errors), for every kind of action.",
    "kl_divergence(other): return KL(self || other), the expectation under self.",
)
def kl(subject: Subject) -> None:
    pairs = zip(_distributions(subject, 1, SAMPLES), _distributions(subject, 2, SAMPLES), strict=True)
    for (kind, p), (_, q) in pairs:
        own = p.kl_divergence(p)
        require(bool((own.abs() <= 1e-6).all()), f"{kind} actions: KL(p || p) = {own[::SAMPLES].tolist()}")
        sample = p.sample(torch.Generator().manual_seed(3))
        _require_mean(f"{kind} actions: KL", p.kl_divergence(q), p.log_prob(sample) - q.log_prob(sample))


@clause(
    "distribution.transform",
    "If a distribution has transform(noise), it turns standard normal noise [N, A] into samples and their"
    " log-densities. These equal log_prob of the samples, and -entropy() on average (within 5 standard"
    " errors).",
    "transform(): add the logarithm of the derivative of every map that is applied after the Gaussian, such as"
    " tanh, with the same sign as in log_prob().",
)
def transform(subject: Subject) -> None:
    checked = 0
    for kind, distribution in _distributions(subject, 1, SAMPLES):
        if not hasattr(distribution, "transform"):
            continue
        noise = torch.randn(distribution.mode().shape, generator=torch.Generator().manual_seed(4))
        made = distribution.transform(noise)
        sample, density = made if isinstance(made, tuple) else (made, distribution.log_prob(made))
        stated = distribution.log_prob(sample)
        row = int((density - stated).abs().median(0).indices)  # median: the inverse is inexact where tanh saturates
        one, other = float(density[row].detach()), float(stated[row].detach())
        require(
            abs(one - other) <= DENSITY * (1.0 + abs(other)),
            f"{kind} actions: transform() gives {sample[row].tolist()} with the log-density {one:.4f}, log_prob() of it is"
            f" {other:.4f}",
        )
        _require_mean(f"{kind} actions: entropy", distribution.entropy(), -density)
        checked += 1
    if not checked:
        raise NotApplicable("its distributions have no transform(noise)")
