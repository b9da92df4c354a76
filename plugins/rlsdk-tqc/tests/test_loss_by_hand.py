"""The target of TQC compared with numbers computed by hand."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsdk_tqc import TQC
from rlsdk_tqc.loss import smallest, truncated_target

ATOMS = torch.tensor([[[1.0, 4.0, 9.0]], [[2.0, 3.0, 8.0]]])  # 2 critics, 1 row, 3 atoms each


def target(keep: int, discount: float, alpha: float = 0.0, log_prob: float = 0.0) -> list[float]:
    y = truncated_target(
        ATOMS,
        torch.tensor([log_prob]),
        torch.tensor([10.0]),
        torch.tensor([discount]),
        torch.tensor(alpha),
        keep=keep,
    )
    assert y.shape == (1, keep)
    return sorted(round(v, 5) for v in y[0].tolist())


def test_the_largest_atoms_of_the_pooled_critics_are_dropped() -> None:
    # pooled and sorted: 1 2 3 4 8 9; dropping one per critic leaves 1 2 3 4
    assert target(keep=4, discount=0.5) == [10.5, 11.0, 11.5, 12.0]


def test_dropping_is_over_the_pool_not_per_critic() -> None:
    # per critic, one atom dropped each would leave 1 4 and 2 3 (the same set); two dropped would leave 1 and 2
    skewed = torch.tensor([[[1.0, 2.0]], [[7.0, 9.0]]])
    y = truncated_target(skewed, torch.zeros(1), torch.zeros(1), torch.ones(1), torch.tensor(0.0), keep=2)
    assert sorted(y[0].tolist()) == [1.0, 2.0]


def test_entropy_is_inside_the_discount() -> None:
    # 10 + 0.5 * (z - 2 * (-3)) for z = 1, 2
    assert target(keep=2, discount=0.5, alpha=2.0, log_prob=-3.0) == [13.5, 14.0]


def test_a_terminated_row_is_its_reward() -> None:
    assert target(keep=4, discount=0.0, alpha=2.0, log_prob=-3.0) == [10.0] * 4


def test_no_truncation_keeps_every_atom() -> None:
    assert target(keep=6, discount=1.0) == [11.0, 12.0, 13.0, 14.0, 18.0, 19.0]


@pytest.mark.parametrize(("value", "expected"), [("auto_5000", 1), ("auto", 0), (5000.0, 0)])
def test_a_learned_entropy_coefficient_that_explodes_is_reported_once(value: str | float, expected: int) -> None:
    small: dict[str, Any] = {
        "learning_starts": 4,
        "buffer_size": 50,
        "batch_size": 4,
        "policy_kwargs": {"net_arch": [4]},
    }
    model = TQC("MlpPolicy", "Pendulum-v1", ent_coef=value, seed=0, **small).learn(8)
    algorithm: Any = model.parts.algorithm
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for updates in (998, 1998):
            algorithm.trained.updates = updates
            for _ in range(3):
                algorithm.update(model.parts.sample(4, model.streams["replay"]), progress=0.0)
    assert sum("ent_coef has grown to" in str(each.message) for each in caught) == expected


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5), st.integers(1, 30), st.integers(1, 30), st.integers(0, 999))
def test_the_smallest_entries(rows: int, size: int, count: int, seed: int) -> None:
    torch.manual_seed(seed)
    count = min(count, size)
    values = torch.randn(rows, size).round(decimals=1)  # some are equal
    values[torch.rand(rows, size) < 0.05] = torch.nan
    expected = values.sort(-1).values[:, :count]
    for given_values in (values, values.clone().requires_grad_()):
        found = smallest(given_values, count).detach()
        assert found.shape == (rows, count)
        torch.testing.assert_close(found.sort(-1).values, expected, rtol=0.0, atol=0.0, equal_nan=True)
