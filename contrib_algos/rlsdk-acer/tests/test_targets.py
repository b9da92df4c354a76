"""Retrace targets equal the recursion of the paper, one number at a time; on-policy they are n-step returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rlsdk_acer.targets import Estimated, retrace
from tests.tables import in_one_test

Array = NDArray[np.float64]


def random_numbers(seed: int, steps: int, columns: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shape = steps, columns
    terminated, truncated = rng.random(shape) < 0.15, rng.random(shape) < 0.15
    return {
        **{name: rng.normal(size=shape) for name in ("reward", "taken", "value", "after")},
        "ratio": np.exp(rng.normal(size=shape)),
        "terminated": terminated,
        "truncated": truncated & ~terminated,
    }


def found_by_retrace(numbers: dict[str, Array], gamma: float) -> Array:
    given = {name: torch.from_numpy(values) for name, values in numbers.items()}
    discount = gamma * (~given["terminated"]).double()
    goes_on = ~given["terminated"] & ~given["truncated"]
    estimated = Estimated(given["taken"], given["value"], given["after"], given["ratio"])
    found: Array = retrace(given["reward"], discount, goes_on, estimated).numpy()
    return found


def by_the_recursion(numbers: dict[str, Array], gamma: float, t: int, n: int) -> float:
    """Q_ret of step t of column n, computed recursively."""
    if numbers["terminated"][t, n]:
        return float(numbers["reward"][t, n])
    if numbers["truncated"][t, n] or t + 1 == len(numbers["reward"]):
        return float(numbers["reward"][t, n] + gamma * numbers["after"][t, n])
    later = by_the_recursion(numbers, gamma, t + 1, n)
    trust = min(1.0, float(numbers["ratio"][t + 1, n]))
    following = trust * (later - numbers["taken"][t + 1, n]) + numbers["value"][t + 1, n]
    return float(numbers["reward"][t, n] + gamma * following)


@in_one_test
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("columns", [1, 20])
def test_the_targets_are_those_of_the_recursion(seed: int, columns: int) -> None:
    numbers = random_numbers(seed, 1 + seed % 9, columns)
    found = found_by_retrace(numbers, 0.9)
    for t, n in np.ndindex(*found.shape):
        assert found[t, n] == pytest.approx(by_the_recursion(numbers, 0.9, t, n), rel=1e-12)


def test_on_policy_they_are_returns_of_n_steps() -> None:
    numbers = random_numbers(0, 7, 2)
    numbers["terminated"][:], numbers["truncated"][:], numbers["ratio"][:] = False, False, 1.0
    numbers["taken"] = numbers["value"]
    found = found_by_retrace(numbers, 0.9)
    for t in range(7):
        powers = 0.9 ** np.arange(7 - t)
        expected = (powers[:, None] * numbers["reward"][t:]).sum(0) + 0.9 ** (7 - t) * numbers["after"][-1]
        np.testing.assert_allclose(found[t], expected)


def test_ratios_above_one_trust_no_more_than_one() -> None:
    numbers = random_numbers(1, 6, 3)
    more = {**numbers, "ratio": np.maximum(numbers["ratio"], 1.0) * 5.0}
    one = {**numbers, "ratio": np.ones_like(numbers["ratio"])}
    np.testing.assert_allclose(found_by_retrace(more, 0.9), found_by_retrace(one, 0.9))


def test_values_after_are_read_at_time_limits_and_at_the_end_only() -> None:
    numbers = random_numbers(2, 8, 5)
    boundary = numbers["truncated"].astype(bool)
    boundary[-1] = ~numbers["terminated"][-1].astype(bool)
    other = {**numbers, "after": np.where(boundary, numbers["after"], 1e6)}
    np.testing.assert_array_equal(found_by_retrace(other, 0.9), found_by_retrace(numbers, 0.9))
