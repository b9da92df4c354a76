"""Targets of QR-DQN computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rlsdk.math.values import flat_index, greedy_action, q_target, values_at

NEXT = torch.tensor([[[0.0, 10.0], [4.0, 5.0], [9.0, 9.5]]])  # means 5, 4.5, 9.25
ONE = (3,)


def target(selector: Tensor, mask: Tensor | None, reward: float, discount: float) -> list[float]:
    best = greedy_action(selector, mask, ONE)
    found: list[float] = q_target(NEXT, best, torch.tensor([reward]), torch.tensor([discount]), ONE)[0, 0].tolist()
    return found


def test_the_target_is_of_one_action() -> None:
    # a maximum over actions for each quantile would give 10 as the second
    assert target(NEXT, None, 1.0, 0.5) == [1 + 0.5 * 9.0, 1 + 0.5 * 9.5]


def test_forbidden_actions_are_no_targets() -> None:
    assert target(NEXT, torch.tensor([[True, True, False]]), 0.0, 1.0) == [0.0, 10.0]
    assert greedy_action(NEXT, torch.tensor([[False, True, False]]), ONE).tolist() == [[1]]


def test_double_q_selects_with_the_other_network() -> None:
    selector = torch.tensor([[[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]])
    assert target(selector, None, 0.0, 1.0) == [4.0, 5.0]


@pytest.mark.parametrize(("discount", "expected"), [(0.0, [2.0, 2.0]), (0.9, [2 + 8.1, 2 + 8.55])])
def test_terminations_do_not_bootstrap(discount: float, expected: list[float]) -> None:
    assert target(NEXT, None, 2.0, discount) == pytest.approx(expected)


def test_rows_choose_their_own_action() -> None:
    rows = torch.arange(12.0).view(2, 3, 2)
    assert values_at(rows, flat_index(torch.tensor([[2], [0]]), ONE)).tolist() == [[[4.0, 5.0], [6.0, 7.0]]]


def test_each_choice_has_its_own_action_and_target() -> None:
    """An action has two choices, of 2 and 3 values: the rows 0, 1 and 2, 3, 4 of `quantiles`."""
    quantiles = torch.tensor([[[1.0, 3.0], [5.0, 5.0], [0.0, 1.0], [9.0, 9.0], [4.0, 6.0]]])
    sizes = (2, 3)
    assert greedy_action(quantiles, None, sizes).tolist() == [[1, 1]]
    mask = torch.tensor([[True, False, True, False, True]])
    best = greedy_action(quantiles, mask, sizes)
    assert best.tolist() == [[0, 2]]
    found = q_target(quantiles, best, torch.tensor([1.0]), torch.tensor([0.5]), sizes)
    assert found.tolist() == [[[1.5, 2.5]], [[3.0, 4.0]]]
