"""Compiled targets and losses of action values, and compiled ensembles of networks, equal those of torch."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlsdk.errors import UsageError
from rlsdk.kernels.factory import action_values, compiled_off
from rlsdk.math.values import greedy_target, smooth_l1, taken_values
from rlsdk.networks.layers import EnsembleLinear, EnsembleMLP
from rlsdk_kernels import backends
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.dense_choice import can_be_compiled, dense_of
from rlsdk_kernels.dense_kernel import DenseKernel
from tests.compiled_variants import needs_library

pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels")]
CHOICES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@settings(max_examples=150, deadline=None)
@given(CHOICES, st.integers(1, 9), st.integers(1, 5), st.booleans(), st.booleans(), st.integers(0, 999))
def test_targets_of_q_learning(
    sizes: tuple[int, ...], rows: int, entries: int, masked: bool, double: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    values = torch.randn(rows, sum(sizes), entries)
    selector = torch.randn_like(values) if double else values
    reward, discount = torch.randn(rows), torch.rand(rows) * (torch.rand(rows) > 0.3)
    mask = torch.rand(rows, sum(sizes)) > 0.5 if masked else None

    def target() -> Tensor:
        return greedy_target(values, reward, discount, sizes, mask=mask, selector=selector)

    assert action_values(values) is not None
    found = target()
    with compiled_off():
        assert action_values(values) is None
        expected = target()
    assert found.shape == (len(sizes), rows, entries)
    torch.testing.assert_close(found, expected)


@settings(max_examples=150, deadline=None)
@given(CHOICES, st.integers(1, 9), st.integers(1, 5), st.booleans(), st.integers(0, 999))
def test_values_taken_and_their_loss(
    sizes: tuple[int, ...], rows: int, entries: int, weighted: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    values = 3 * torch.randn(rows, sum(sizes), entries)
    action = torch.stack([torch.randint(size, (rows,)) for size in sizes], -1)
    target, weight = torch.randn(len(sizes), rows, entries), torch.rand(rows) if weighted else None
    offsets = torch.tensor([sum(sizes[:k]) for k in range(len(sizes))])
    leaf = values.clone().requires_grad_()
    index = (action + offsets).T.unsqueeze(-1).expand(-1, -1, entries)
    chosen = torch.stack([leaf.gather(1, own.unsqueeze(1)).squeeze(1) for own in index])
    each = nn.functional.smooth_l1_loss(chosen, target, reduction="none")
    expected = (each if weight is None else each * weight.unsqueeze(-1)).mean()
    expected.backward()
    for context in (compiled_off(), None):
        if context is not None:
            with context:
                taken, vjp = taken_values(values, action, sizes)
                loss, grad = smooth_l1(taken, target, weight=weight)
                found = vjp(grad)
        else:
            taken, vjp = taken_values(values, action, sizes)
            loss, grad = smooth_l1(taken, target, weight=weight)
            found = vjp(grad)
        assert torch.equal(taken, chosen.detach())
        torch.testing.assert_close(loss, expected.detach())
        assert leaf.grad is not None
        torch.testing.assert_close(found, leaf.grad)


@pytest.mark.parametrize("start", [0, 3])
def test_gradients_do_not_depend_on_temporaries_of_the_caller(start: int) -> None:
    torch.manual_seed(0)
    values, action = torch.randn(64, 4, 2), torch.randint(4, (64, 1)) + start
    taken, vjp = taken_values(values, action - start if start else action.clone(), (4,))
    junk = [torch.full((64, 1), number) for number in (0, 1, -1, 2**40) for _ in range(50)]  # reuses freed memory
    grad = torch.randn_like(taken)
    with compiled_off():
        expected = taken_values(values, action - start, (4,))[1](grad)
    assert torch.equal(vjp(grad), expected)
    assert len(junk) == 200


def test_a_nan_is_the_largest_value_and_stays_in_losses() -> None:
    values = torch.tensor([[[1.0], [math.nan], [5.0]], [[1.0], [2.0], [0.0]]])
    both = torch.zeros(2), torch.ones(2)
    found = greedy_target(values, *both, (3,), mask=None, selector=values)
    assert found[0, 0].isnan().all()
    assert found[0, 1].tolist() == [2.0]
    none = torch.zeros(2, 3, dtype=torch.bool)
    assert greedy_target(values, *both, (3,), mask=none, selector=values)[0, 1].tolist() == [1.0], "the first value"
    loss, grad = smooth_l1(values[:, :2].transpose(0, 1).contiguous(), torch.zeros(2, 2, 1))
    assert loss.isnan()
    assert grad.isnan().sum() == 1


def test_what_compiled_values_refuse() -> None:
    values, action = torch.randn(4, 3, 1), torch.tensor([[0], [1], [2], [0]])
    for outside in (-1, 3, 2**40):
        wrong = action.clone()
        wrong[2] = outside
        with pytest.raises(UsageError, match="none of the"):
            taken_values(values, wrong, (3,))
    for other in (action.int(), action[:3], action.squeeze(1)):
        with pytest.raises(UsageError, match="the policy takes"):
            taken_values(values, other, (3,))
    with pytest.raises(UsageError, match="does not fit"):
        taken_values(values, action, (4,))
    taken, vjp = taken_values(values, action, (3,))
    with pytest.raises(UsageError, match="does not fit"):
        vjp(torch.randn(1, 3, 1))
    with pytest.raises(UsageError, match="does not fit"):
        smooth_l1(taken, torch.zeros_like(taken), weight=torch.ones(3))
    for reward in (torch.zeros(3), torch.zeros(4, 1)):
        with pytest.raises(UsageError, match="does not fit"):
            greedy_target(values, reward, torch.ones(4), (3,), mask=None, selector=values)
    mask = torch.ones(4, 2, dtype=torch.bool)
    with pytest.raises(UsageError, match="the policy takes"):
        greedy_target(values, torch.zeros(4), torch.ones(4), (3,), mask=mask, selector=values)


def test_torch_computes_what_needs_a_graph_or_other_numbers() -> None:
    leaf, target = torch.randn(2, 4, 1, requires_grad=True), torch.randn(2, 4, 1)
    loss, _ = smooth_l1(leaf, target)
    loss.backward()
    assert leaf.grad is not None
    for tensor in (leaf, target.double(), target.transpose(0, 1), target.to("meta")):
        assert action_values(tensor) is None
    assert smooth_l1(target.double(), target.double())[0].dtype is torch.float64


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.sampled_from([1, 2, 5, 16, 17, 64]), max_size=3),
    st.sampled_from([1, 2, 4, 5, 17, 25]),
    st.sampled_from([1, 2, 3, 4, 13]),
    st.sampled_from(["tanh", "relu"]),
    st.integers(0, 999),
)
def test_ensembles(members: int, widths: list[int], outputs: int, rows: int, activation: str, seed: int) -> None:
    torch.manual_seed(seed)
    ensemble = EnsembleMLP(members, 6, widths, outputs, activation)
    modules, exact = list(ensemble.layers), copy.deepcopy(ensemble).double()
    for parameter in ensemble.parameters():
        parameter.grad = torch.full_like(parameter, math.nan)  # gradients are overwritten
    assert can_be_compiled(modules)
    kernel = dense_of(modules, "compiled")
    assert isinstance(kernel, CompiledDense)
    x, grad = torch.randn(rows, 6), torch.randn(members, rows, outputs)
    entered = x.double().requires_grad_()
    expected = exact(entered)
    input_grad, *gradients = torch.autograd.grad(expected, [entered, *exact.parameters()], grad.double())
    for kernel_now in (kernel, pickle.loads(pickle.dumps(kernel))):
        found, vjp = kernel_now.evaluate(x)
        torch.testing.assert_close(found, expected.detach().float(), atol=1e-5, rtol=1e-4)
        by_inputs, input_vjp = kernel_now.evaluate_inputs(x)
        assert torch.equal(by_inputs, found)
        torch.testing.assert_close(input_vjp(grad), input_grad.float(), atol=1e-4, rtol=1e-4)
        if kernel_now is kernel:
            vjp(grad)
            for parameter, own in zip(ensemble.parameters(), gradients, strict=True):
                torch.testing.assert_close(parameter.grad, own.float(), atol=1e-4, rtol=1e-4)
    first = dense_of(modules, "compiled", 0)
    assert isinstance(first, CompiledDense)
    assert torch.equal(first.evaluate(x)[0], found[0])


def test_which_ensembles_are_compiled() -> None:
    good = [EnsembleLinear(2, 3, 4), nn.ReLU(), EnsembleLinear(2, 4, 1)]
    assert can_be_compiled(good)
    other_members = [EnsembleLinear(2, 3, 4), nn.ReLU(), EnsembleLinear(3, 4, 1)]
    mixed = [EnsembleLinear(2, 3, 4), nn.ReLU(), nn.Linear(4, 1)]
    other_widths = [EnsembleLinear(2, 3, 4), nn.ReLU(), EnsembleLinear(2, 5, 1)]
    for modules in (other_members, mixed, other_widths, [EnsembleLinear(2, 3, 4).double()]):
        assert not can_be_compiled(modules)
    flat, reordered = nn.Linear(3, 3), nn.Linear(3, 3)
    flat.weight = nn.Parameter(torch.zeros(3))
    assert not can_be_compiled([flat])
    weight = reordered.weight
    del reordered.weight
    reordered.weight = weight  # now after the bias
    assert can_be_compiled([reordered])
    wide = [EnsembleLinear(2, 3, 200).double()]
    kernel = dense_of(wide, "compiled")
    assert isinstance(kernel, DenseKernel)
    assert kernel.backend is backends.TORCH, "numpy is slow for wide layers"
