"""Trees of tensors keep their structure, also named tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from rlsdk import tree


class Pair(NamedTuple):
    """A named tuple with a tree inside."""

    one: Tensor
    two: Any


@dataclass(frozen=True)
class Record:
    """A dataclass with a named tuple inside."""

    pair: Pair
    rest: Any


def example(start: float = 0.0) -> Record:
    values = torch.arange(4.0) + start
    return Record(Pair(values, {"a": values + 10, "b": None}), (values + 20, Pair(values + 30, ())))


def test_every_function_keeps_the_structure() -> None:
    node = example()
    doubled = tree.map_tensors(lambda leaf: 2 * leaf, node)
    summed = tree.map_tensors(torch.add, node, doubled)
    stacked = tree.stack([node, doubled, summed])
    parts = list(tree.split(node, 2))
    rebuilt = tree.layout(node).build(iter(tree.leaves(node)))
    for found in (doubled, summed, stacked, *parts, rebuilt):
        assert type(found.pair) is type(found.rest[1]) is Pair
        assert type(found.rest) is tuple
        assert found.pair.two["b"] is None
    assert tree.layout(doubled) == tree.layout(node)
    assert summed.rest[1].one.tolist() == [90.0, 93.0, 96.0, 99.0]
    assert stacked.pair.one.tolist() == [[0, 1, 2, 3], [0, 2, 4, 6], [0, 3, 6, 9]]
    assert parts[1].pair.two["a"].tolist() == [12.0, 13.0]
    assert [float(leaf[0]) for leaf in tree.leaves(node)] == [0, 10, 20, 30]


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="int is not a tree of tensors"):
        tree.map_tensors(torch.neg, Pair(torch.zeros(1), 3))
