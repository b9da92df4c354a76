"""Compiled steps of optimizers equal torch's. Compiled code leaves all that it cannot compute to torch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlsdk.kernels.factory import compiled_off
from rlsdk.updates import FlatOptimizer
from rlsdk_kernels.compiled_vectors import CompiledStep
from tests.compiled_variants import needs_library
from tests.tables import in_one_test

pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels")]
CHOICES: list[tuple[Any, dict[str, Any], bool]] = [
    ("adam", {}, True),
    ("adam", {"eps": 1e-3, "betas": (0.5, 0.7), "weight_decay": 0.1}, True),
    ("rmsprop", {}, True),
    ("adam", {"amsgrad": True}, False),
    ("adam", {"maximize": True}, False),
    ("rmsprop", {"momentum": 0.5}, False),
    ("rmsprop", {"centered": True}, False),
    (torch.optim.SGD, {"momentum": 0.9}, False),
    (torch.optim.AdamW, {}, False),
    (lambda parameters, **rest: torch.optim.Adagrad(parameters, **rest), {}, False),
]


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize(("choice", "arguments", "is_compiled"), CHOICES)
@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_optimizers_make_the_same_steps_without_compiled_code(
    choice: Any, arguments: dict[str, Any], is_compiled: bool, max_norm: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[bool] = []
    made = CompiledStep.__call__
    monkeypatch.setattr(CompiledStep, "__call__", lambda *given: (counted.append(made(*given)), counted[-1])[1])

    def trained() -> tuple[Tensor, dict[str, Any]]:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 2))
        optimizer = FlatOptimizer(network, choice, 1e-2, arguments)
        for step in range(70):
            optimizer.zero_grad()
            for parameter in network.parameters():
                assert parameter.grad is not None
                parameter.grad.copy_(torch.randn_like(parameter) * 10.0 ** (step % 5 - 2))
            if step == 40:
                optimizer.load_state_dict(optimizer.state_dict())
            optimizer.step(1e-2 / (1 + step), max_norm)
        return torch.cat([p.detach().flatten() for p in network.parameters()]), optimizer.state_dict()

    values, state = trained()
    assert any(counted) == is_compiled
    with compiled_off():
        expected, states = trained()
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-7)
    assert state.keys() == states.keys()
    for name, value in state.items():
        torch.testing.assert_close(value, states[name], rtol=1e-4, atol=1e-7)


def test_frozen_parameters_and_hooks_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledStep, "__call__", lambda *_: pytest.fail("compiled code made a step"))
    network = nn.Linear(3, 2)
    optimizer = FlatOptimizer(network, "adam", 1e-2)

    def step() -> None:
        optimizer.zero_grad()
        optimizer.gradients.fill_(1.0)
        optimizer.step(1e-2)

    step()  # the first step is always torch's
    network.bias.requires_grad_(False)
    before = network.bias.clone()
    step()
    assert network.bias.equal(before)
    network.bias.requires_grad_(True)
    called: list[int] = []
    optimizer.optimizer.register_step_post_hook(lambda *_: called.append(1))
    step()
    assert called == [1]


def test_a_copied_optimizer_changes_its_own_vectors() -> None:
    network = nn.Linear(3, 2)
    optimizer = FlatOptimizer(list(network.parameters()), "adam", 1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        optimizer.gradients.fill_(1.0)
        optimizer.step(1e-2)
    before = optimizer.flat.clone()
    other = copy.deepcopy(optimizer)
    other.flat.grad = torch.ones_like(other.flat)  # torch copies no gradients
    other.step(1e-2)
    assert optimizer.flat.equal(before)
    assert not other.flat.equal(before)
