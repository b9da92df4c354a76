"""Distributions compared with references in float64, with and without masks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlsdk.distributions import Bernoulli, Categorical, Gaussian, MultiCategorical, Product
from rlsdk.environments import to_space
from rlsdk.networks import build_action_head
from rlsdk_envs.toy import HybridActionEnv
from rlsdk_testing.strategies import examples

ROWS, SIZES = 4, (3, 2, 4)


def drawn(seed: int, width: int, scale: float = 2.0) -> torch.Tensor:
    return torch.randn(ROWS, width, generator=torch.Generator().manual_seed(seed)) * scale


def some_mask(seed: int, sizes: tuple[int, ...]) -> torch.Tensor:
    """A random mask, bool [ROWS, sum(sizes)], with at least one allowed value per choice."""
    rng = np.random.default_rng(seed)
    parts = []
    for size in sizes:
        part = rng.random((ROWS, size)) < 0.5
        part[np.arange(ROWS), rng.integers(size, size=ROWS)] = True
        parts.append(part)
    return torch.from_numpy(np.concatenate(parts, 1))


def reference(logits: torch.Tensor, mask: torch.Tensor | None) -> np.ndarray[Any, Any]:
    """The probabilities [ROWS, values] of one choice, in float64."""
    values = np.exp(logits.double().numpy() - logits.double().numpy().max(1, keepdims=True))
    values = values if mask is None else values * mask.numpy()
    return values / values.sum(1, keepdims=True)


def plogp(p: np.ndarray[Any, Any], q: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = p * (np.log(p) - (0.0 if q is None else np.log(q)))
    return np.where(p > 0, terms, 0.0)


@examples
@given(st.integers(0, 999), st.booleans())
def test_categorical(seed: int, masks: bool) -> None:
    mask = some_mask(seed, (5,)) if masks else None
    p, q = (Categorical.of(drawn(seed + k, 5), mask) for k in (0, 1))
    one, two = (reference(drawn(seed + k, 5), mask) for k in (0, 1))
    assert np.allclose(p.log_probs.exp(), one, atol=1e-6)
    assert np.allclose(p.entropy(), -plogp(one).sum(1), atol=1e-5)
    assert np.allclose(p.kl_divergence(q), plogp(one, two).sum(1), atol=1e-4)
    assert np.array_equal(p.mode(), one.argmax(1))
    allowed = one.argmax(1)
    assert np.allclose(p.log_prob(torch.from_numpy(allowed)), np.log(one.max(1)), atol=1e-5)


@examples
@given(st.integers(0, 999), st.booleans())
def test_multi_categorical_is_the_sum_of_its_parts(seed: int, masks: bool) -> None:
    mask = some_mask(seed, SIZES) if masks else None
    p, q = (MultiCategorical.of(drawn(seed + k, sum(SIZES)), SIZES, mask) for k in (0, 1))
    action = p.sample(torch.Generator().manual_seed(seed))
    expected = {"log_prob": 0.0, "entropy": 0.0, "kl": 0.0}
    for k, part in enumerate(torch.split(torch.arange(sum(SIZES)), list(SIZES))):
        own = None if mask is None else mask[:, part]
        one, two = (reference(drawn(seed + j, sum(SIZES))[:, part], own) for j in (0, 1))
        expected["log_prob"] = expected["log_prob"] + np.log(one[np.arange(ROWS), action[:, k]])
        expected["entropy"] = expected["entropy"] - plogp(one).sum(1)
        expected["kl"] = expected["kl"] + plogp(one, two).sum(1)
        assert np.array_equal(p.mode()[:, k], one.argmax(1))
    assert np.allclose(p.log_prob(action), expected["log_prob"], atol=1e-5)
    assert np.allclose(p.entropy(), expected["entropy"], atol=1e-5)
    assert np.allclose(p.kl_divergence(q), expected["kl"], atol=1e-4)


@examples
@given(st.integers(0, 999), st.booleans())
def test_bernoulli_against_every_outcome(seed: int, masks: bool) -> None:
    mask = some_mask(seed, (2, 2, 2)) if masks else None
    p, q = (Bernoulli.of(drawn(seed + k, 3), mask) for k in (0, 1))
    outcomes = torch.tensor(list(itertools.product((0, 1), repeat=3)), dtype=torch.int8)
    for row in range(ROWS):
        single = [Bernoulli(each.logits[row : row + 1].double()) for each in (p, q)]
        log_p, log_q = (each.log_prob(outcomes) for each in single)
        assert float(log_p.exp().sum()) == pytest.approx(1.0)
        held = log_p > -50
        assert float(-(log_p.exp() * log_p)[held].sum()) == pytest.approx(float(p.entropy()[row]), abs=1e-5)
        kl = (log_p.exp() * (log_p - log_q))[held].sum()
        assert float(kl) == pytest.approx(float(p.kl_divergence(q)[row]), abs=1e-4)
        assert torch.equal(outcomes[log_p.argmax()], p.mode()[row])
        if mask is not None:
            pairs = mask[row].view(3, 2)
            legal = torch.stack([pairs[torch.arange(3), o.long()].all() for o in outcomes])
            assert float(log_p.exp()[~legal].sum()) == 0.0


@pytest.mark.parametrize("kind", ["categorical", "multi", "bernoulli"])
def test_frequencies_of_samples(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    mask = some_mask(1, (2, 2, 2) if kind == "bernoulli" else (6,))
    logits = drawn(3, 3 if kind == "bernoulli" else 6, 1.0)[:1].expand(20_000, -1)
    wide = mask[:1].expand(20_000, -1)
    if kind == "bernoulli":
        chosen = Bernoulli.of(logits, wide).sample(generator).double().mean(0)
        assert torch.allclose(chosen, Bernoulli.of(logits[:1], mask[:1]).logits[0].sigmoid().double(), atol=0.015)
        return
    made = Categorical.of(logits, wide) if kind == "categorical" else MultiCategorical.of(logits, (6,), wide)
    counts = torch.bincount(made.sample(generator).flatten(), minlength=6) / 20_000
    assert torch.allclose(counts.double(), torch.from_numpy(reference(logits[:1], mask[:1]))[0], atol=0.015)
    assert bool((counts[~mask[0]] == 0).all())


def test_no_gradient_flows_into_forbidden_values() -> None:
    for make, width, sizes in (
        (lambda x, m: Categorical.of(x, m), 5, (5,)),
        (lambda x, m: MultiCategorical.of(x, SIZES, m), sum(SIZES), SIZES),
    ):
        logits, mask = drawn(1, width).requires_grad_(), some_mask(2, sizes)
        distribution = make(logits, mask)
        total = distribution.entropy().sum() + distribution.log_prob(distribution.mode()).sum()
        total.backward()
        assert logits.grad is not None
        assert bool((logits.grad[~mask] == 0).all())
        assert bool((logits.grad[mask] != 0).any())
    bits, mask = drawn(1, 3).requires_grad_(), some_mask(2, (2, 2, 2))
    Bernoulli.of(bits, mask).entropy().sum().backward()
    free = mask.view(ROWS, 3, 2).all(-1)
    assert bits.grad is not None
    assert bool((bits.grad[~free] == 0).all())
    assert bool((bits.grad[free] != 0).all())


def test_large_spaces_do_not_crash() -> None:
    """Distributions over thousands of values with large logits can be sampled; the validation in other libraries fails here."""
    logits = torch.randn(32, 5000, generator=torch.Generator().manual_seed(0)) * 30
    mask = torch.zeros(32, 5000, dtype=torch.bool)
    mask[:, ::7] = True
    for step in range(300):
        action = Categorical.of(logits, mask).sample(torch.Generator().manual_seed(step))
        assert bool(mask.gather(1, action[:, None]).all())


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ten_thousand_actions_in_two_precisions(dtype: torch.dtype) -> None:
    """Of 10,048 samples with logits in [-50, 50] none is forbidden, and forbidden values get no gradient."""
    generator = torch.Generator().manual_seed(0)
    logits = ((torch.rand(64, 10_000, generator=generator) - 0.5) * 100).to(dtype).requires_grad_()
    mask = torch.rand(64, 10_000, generator=generator) < 0.3
    found = Categorical.of(logits, mask)
    drawn = [found.sample(generator) for _ in range(157)]
    assert all(bool(mask.gather(1, action[:, None]).all()) for action in drawn)
    (found.entropy().sum() + found.log_prob(drawn[0]).sum()).backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert bool((logits.grad[~mask] == 0).all())


def test_product_is_the_sum_of_its_parts() -> None:
    space = to_space(HybridActionEnv().action_space)
    torch.manual_seed(0)
    head = build_action_head(space, 6)
    latent = drawn(5, 6)
    joint = head(latent, None)
    assert isinstance(joint, Product)
    action = joint.sample(torch.Generator().manual_seed(1))
    other = head(latent * 0.5, None)
    parts = joint.parts if isinstance(joint.parts, tuple) else tuple(joint.parts.values())
    others = other.parts if isinstance(other.parts, tuple) else tuple(other.parts.values())
    values = action if isinstance(action, tuple) else tuple(action.values())
    assert torch.allclose(joint.log_prob(action), sum(p.log_prob(a) for p, a in zip(parts, values, strict=True)))  # type: ignore[arg-type]
    assert torch.allclose(joint.entropy(), sum(p.entropy() for p in parts))  # type: ignore[arg-type]
    pairs = zip(parts, others, strict=True)
    assert torch.allclose(joint.kl_divergence(other), sum(p.kl_divergence(o) for p, o in pairs))  # type: ignore[arg-type]
    assert {type(p) for p in parts} & {Categorical, Gaussian}
