"""The pairwise Huber loss computed by sorting equals the sum over all pairs in float64."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlsdk.kernels import reference
from rlsdk.kernels.factory import compiled_off
from rlsdk.math.values import midpoints, quantile_huber
from rlsdk_kernels import compiled_values, compiled_vectors, pairwise_huber
from tests.compiled_variants import RUNNABLE, loaded, needs_library
from tests.tables import in_one_test

LARGE, SMALL = (3, 120), (3, 20)


def both(z: Tensor, y: Tensor, weight: Tensor | None) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return (loss, gradients) computed by sorting, and the same computed over all pairs in float64."""
    asymmetry = 2.0 * midpoints(z.shape[-1], z) - 1.0
    wide = None if weight is None else weight.double()
    total, grads = reference.pairwise_huber(z.double(), y.double(), asymmetry.double(), wide)
    return pairwise_huber.sorted_huber(z, y, asymmetry, weight), (total.float(), grads.float())


@given(
    st.integers(0, 2**31),
    st.sampled_from([(), (2,)]),
    st.integers(1, 4),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([0.05, 1.0, 30.0]),
    st.sampled_from([0.0, 1e4, -1e6]),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_sorting_finds_the_sums_over_all_pairs(
    seed: int,
    members: tuple[int, ...],
    rows: int,
    quantiles: int,
    atoms: int,
    spread: float,
    offset: float,
    weighted: bool,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(*members, rows, quantiles, generator=generator) * spread + offset
    y = torch.randn(rows, atoms, generator=generator) * spread + offset
    weight = torch.rand(rows, generator=generator) if weighted else None
    found, expected = both(z, y, weight)
    assert (found[0].shape, found[1].shape, found[1].dtype) == ((), z.shape, torch.float32)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_ties_and_differences_of_exactly_one() -> None:
    y = torch.tensor([[-1.0, 0.0, 0.0, 1.0, 1.0, 2.0]])
    z = torch.tensor([[0.0, 1.0, 2.0, 0.0, -1.0]])
    found, expected = both(z, y, None)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["predicted", "target"])
def test_what_is_not_finite_makes_the_loss_so(wrong: float, where: str) -> None:
    z, y = torch.randn(LARGE), torch.randn(LARGE)
    (z if where == "predicted" else y)[1, 7] = wrong
    assert pairwise_huber.worth_sorting(z, y)
    loss, _ = quantile_huber(z, y, sum_over_quantiles=True)
    assert not bool(loss.isfinite()), "the run has to stop there"


@pytest.mark.kernels("which kernel is chosen")
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_library)])
def test_many_quantiles_are_sorted_and_few_are_not(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    large = (3, 500) if compiled else LARGE
    calls = list[tuple[int, ...]]()

    def noted(current: Tensor, *rest: Tensor | None) -> tuple[Tensor, Tensor]:
        calls.append(tuple(current.shape))
        return by_sorting(current, *rest)  # type: ignore[arg-type]

    by_sorting = pairwise_huber.sorted_huber
    monkeypatch.setattr(pairwise_huber, "sorted_huber", noted)
    for shape in (large, SMALL):
        z, y = torch.randn(shape), torch.randn(shape)
        with nullcontext() if compiled else compiled_off():
            given_here = quantile_huber(z, y, sum_over_quantiles=False)
        reference = quantile_huber(z.double(), y.double(), sum_over_quantiles=False)
        torch.testing.assert_close(given_here[1].double(), reference[1], rtol=1e-5, atol=1e-9)
    assert calls == [large]


def test_inputs_are_left_as_they_were() -> None:
    z, y, weight = torch.randn(LARGE), torch.randn(LARGE), torch.rand(3)
    before = z.clone(), y.clone(), weight.clone()
    quantile_huber(z, y, sum_over_quantiles=True, weight=weight)
    assert all(torch.equal(now, then) for now, then in zip((z, y, weight), before, strict=True))


@needs_library
@pytest.mark.kernels("tests compiled kernels")
@pytest.mark.parametrize("library", RUNNABLE)
def test_compiled_code_finds_the_sums_over_all_pairs(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = loaded(library)
    monkeypatch.setattr(compiled_values, "_function", lambda: chosen.pairwise_huber)
    monkeypatch.setattr(compiled_values, "by_torch", None)

    @settings(max_examples=100, deadline=None)
    @given(
        st.integers(0, 2**31),
        st.sampled_from([(), (2,), (2, 3)]),
        st.integers(1, 4),
        st.sampled_from([1, 7, 8, 15, 16, 25, 32, 33, 70]),
        st.sampled_from([1, 2, 31, 46]),
        st.sampled_from([0.05, 1.0, 30.0]),
        st.tuples(st.booleans(), st.booleans(), st.booleans()),
    )
    def check(
        seed: int,
        members: tuple[int, ...],
        rows: int,
        quantiles: int,
        atoms: int,
        spread: float,
        flags: tuple[bool, bool, bool],
    ) -> None:
        weighted, apart, copied = flags
        generator = torch.Generator().manual_seed(seed)
        z = torch.randn(*members, rows, quantiles, generator=generator) * spread
        y = torch.randn(*(members if apart else ()), rows, atoms, generator=generator) * spread
        if copied:
            z, y = z.mT.contiguous().mT, y.mT.contiguous().mT
        weight = torch.rand(rows, generator=generator) if weighted else None
        asymmetry = 2.0 * midpoints(quantiles, z) - 1.0
        wide = None if weight is None else weight.double()
        found = compiled_values.pairwise_huber(z, y, asymmetry, weight)
        expected = reference.pairwise_huber(z.double(), y.double(), asymmetry.double(), wide)
        assert (found[0].shape, found[1].shape, found[1].dtype) == ((), z.shape, torch.float32)
        torch.testing.assert_close(found[0], expected[0].float(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[1], expected[1].float(), rtol=1e-4, atol=1e-5)

    check()


@needs_library
@pytest.mark.kernels("tests compiled kernels")
@pytest.mark.parametrize("library", RUNNABLE)
def test_compiled_sums_over_many_atoms_are_as_exact_as_those_of_torch(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = loaded(library)
    monkeypatch.setattr(compiled_values, "_function", lambda: chosen.pairwise_huber)
    monkeypatch.setattr(compiled_values, "by_torch", None)
    generator = torch.Generator().manual_seed(0)
    for quantiles, atoms in ((100, 100), (100, 200), (100, 500)):
        z, y = (torch.randn(64, size, generator=generator) * 2.0 for size in (quantiles, atoms))
        asymmetry = 2.0 * midpoints(quantiles, z) - 1.0
        _, expected = reference.pairwise_huber(z.double() + 1.0, y.double(), asymmetry.double(), None)
        _, found = compiled_values.pairwise_huber((z.double() + 1.0).float(), y, asymmetry, None)
        assert (found - expected).abs().max() / expected.abs().max() < 1e-6


@in_one_test
@needs_library
@pytest.mark.kernels("tests compiled kernels")
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["predicted", "target"])
def test_compiled_code_notices_what_is_not_finite(wrong: float, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_values, "by_torch", None)
    z, y = torch.randn(2, *SMALL), torch.randn(SMALL)
    (z[1] if where == "predicted" else y)[1, 7] = wrong
    total, grad = compiled_values.pairwise_huber(z, y, torch.zeros(SMALL[1]), None)
    assert not bool(total.isfinite())
    assert bool(grad[0, 0].isfinite().all())


@needs_library
@pytest.mark.kernels("tests compiled kernels")
def test_torch_computes_what_compiled_code_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y, skew, weight = torch.randn(2, *SMALL), torch.randn(SMALL), torch.zeros(SMALL[1]), torch.rand(SMALL[0])
    monkeypatch.setattr(compiled_values, "_function", lambda: None)
    expected = reference.pairwise_huber(z, y, skew, weight)
    for given_here in (
        (z.double(), y.double(), skew.double(), weight.double()),
        (z.clone().requires_grad_(), y, skew, weight),
        (z, y[None], skew, weight),
        (z, y, skew[:1], weight),
    ):
        found = compiled_values.pairwise_huber(*given_here) or reference.pairwise_huber(*given_here)
        torch.testing.assert_close(found[1].detach().float(), expected[1])
    with pytest.raises(RuntimeError, match="size"):
        compiled_values.pairwise_huber(z, y[:2], skew, weight)


def test_sums_beyond_float32_are_infinite() -> None:
    """As in a computation in float32. torch raises a RuntimeError when such a number becomes a tensor."""
    z, y, skew = torch.full(SMALL, -3e38), torch.full(SMALL, 3e38), torch.zeros(SMALL[1])
    assert compiled_values.pairwise_huber(z, y, skew, None)[0] == math.inf
    target = torch.tensor([0.0, 1.0, 2.0])
    assert compiled_vectors.explained_variance(torch.tensor([1e25, -1e25, 1e25]), target) == -math.inf
    assert reference.explained_variance(torch.tensor([1e18, -1e18, 1e18]), target * 1e-18) == -math.inf
