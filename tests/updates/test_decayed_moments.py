"""Moments of parameters without gradients become 0 instead of subnormal numbers, and nothing else changes."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from rlsdk.kernels.factory import compiled_off
from rlsdk.updates import FlatOptimizer

NUMBERS, STEPS = 64, 2000
CHOICES = pytest.mark.parametrize(
    ("choice", "arguments", "reference"),
    [
        ("adam", {}, lambda p: torch.optim.Adam(p, lr=1e-2, fused=True)),
        ("adam", {"amsgrad": True}, lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, fused=True)),
        ("rmsprop", {"alpha": 0.9}, lambda p: torch.optim.RMSprop(p, lr=1e-2, alpha=0.9)),
    ],
    ids=["adam", "amsgrad", "rmsprop"],
)


def gradient(step: int) -> Tensor:
    """A random gradient [64]. After ten steps its first half is 0, as that of units which are never active."""
    found = torch.randn(NUMBERS, generator=torch.Generator().manual_seed(step))
    if step >= 10:
        found[: NUMBERS // 2] = 0.0
    return found


def subnormal(numbers: Tensor) -> int:
    return int(((numbers != 0) & (numbers.abs() < torch.finfo(numbers.dtype).tiny)).sum())


def trained(optimizer: FlatOptimizer, steps: range) -> int:
    """Make the steps. Returns the largest count of subnormal moments after a step."""
    most = 0
    for step in steps:
        optimizer.gradients.copy_(gradient(step))
        optimizer.step(1e-2)
        state = optimizer.state_dict()
        most = max(most, sum(subnormal(value) for value in state.values() if isinstance(value, Tensor)))
    return most


def follow(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, steps: int) -> None:
    """Make the same steps with an optimizer of torch."""
    for step in range(steps):
        parameter.grad = gradient(step)
        optimizer.step()


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.linspace(-1.0, 1.0, NUMBERS))


@CHOICES
@pytest.mark.parametrize("switch", [compiled_off, nullcontext], ids=["uncompiled", "any code"])
def test_the_parameters_are_those_of_torch_and_no_moment_is_subnormal(choice, arguments, reference, switch):
    ours, theirs = parameter(), parameter()
    with switch():
        optimizer, plain = FlatOptimizer([ours], choice, 1e-2, arguments), reference([theirs])
    assert trained(optimizer, range(STEPS)) == 0
    follow(plain, theirs, STEPS)
    state = plain.state[theirs]
    assert sum(subnormal(value) for value in state.values()) > 0, "the reference has none, so this tests nothing"
    # compiled code rounds every square root, torch's vector library rounds one in about ten thousand differently
    rounding = 1e-6 if switch is nullcontext and choice == "rmsprop" else 0.0
    torch.testing.assert_close(ours, theirs, rtol=rounding, atol=rounding)
    for name, value in optimizer.state_dict().items():
        assert torch.equal(value[NUMBERS // 2 :], state[name][NUMBERS // 2 :]) if value.dim() else value == state[name]


@CHOICES
def test_a_resumed_optimizer_clears_the_same_moments(choice, arguments, reference):
    whole, first, second = (FlatOptimizer([parameter()], choice, 1e-2, arguments) for _ in range(3))
    trained(whole, range(STEPS))
    trained(first, range(797))  # not a multiple of the steps between two clearings
    second.load_state_dict(first.state_dict())
    trained(second, range(797, STEPS))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_momentum_without_a_step_count_is_that_of_torch():
    ours, theirs = parameter(), parameter()
    optimizer, plain = (
        FlatOptimizer([ours], torch.optim.SGD, 1e-2, {"momentum": 0.9}),
        torch.optim.SGD([theirs], 1e-2, 0.9),
    )
    trained(optimizer, range(100))
    follow(plain, theirs, 100)
    assert torch.equal(ours, theirs)
    assert torch.equal(optimizer.state_dict()["momentum_buffer"], plain.state[theirs]["momentum_buffer"])
