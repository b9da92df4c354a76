"""Targets of QR-DQN computed by hand."""

from __future__ import annotations

import pytest
import torch

from rlsdk_qrdqn.loss import greedy_action, of_action, quantile_target

NEXT = torch.tensor([[[0.0, 10.0], [4.0, 5.0], [9.0, 9.5]]])  # means 5, 4.5, 9.25


def test_the_target_is_of_one_action() -> None:
    found = quantile_target(NEXT, NEXT, None, torch.tensor([1.0]), torch.tensor([0.5]))
    assert found.tolist() == [[1 + 0.5 * 9.0, 1 + 0.5 * 9.5]]  # a maximum per quantile would give 10 for the second


def test_forbidden_actions_are_no_targets() -> None:
    mask = torch.tensor([[True, True, False]])
    found = quantile_target(NEXT, NEXT, mask, torch.tensor([0.0]), torch.tensor([1.0]))
    assert found.tolist() == [[0.0, 10.0]]
    assert greedy_action(NEXT, torch.tensor([[False, True, False]])).tolist() == [1]


def test_double_q_judges_with_the_other_network() -> None:
    judge = torch.tensor([[[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]])
    found = quantile_target(NEXT, judge, None, torch.tensor([0.0]), torch.tensor([1.0]))
    assert found.tolist() == [[4.0, 5.0]]


@pytest.mark.parametrize(("discount", "expected"), [(0.0, [[2.0, 2.0]]), (0.9, [[2 + 8.1, 2 + 8.55]])])
def test_terminations_do_not_bootstrap(discount: float, expected: list[list[float]]) -> None:
    found = quantile_target(NEXT, NEXT, None, torch.tensor([2.0]), torch.tensor([discount]))
    assert found.flatten().tolist() == pytest.approx(expected[0])


def test_rows_choose_their_own_action() -> None:
    rows = torch.arange(12.0).view(2, 3, 2)
    assert of_action(rows, torch.tensor([2, 0])).tolist() == [[4.0, 5.0], [6.0, 7.0]]
