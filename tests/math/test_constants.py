"""Tensors of constant numbers are kept, but not those of tracers."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from rlsdk.math.values import constant, multiples


def test_constants_are_made_once() -> None:
    like = torch.zeros(1)
    assert constant([3, 5], like) is constant((3, 5), like)
    assert constant([3, 5], like).tolist() == [3, 5]
    assert multiples(4, 3, like) is multiples(4, 3, like)
    assert multiples(4, 3, like).tolist() == [0, 3, 6, 9]
    assert constant([], like).dtype is multiples(0, 3, like).dtype is torch.int64


def test_tensors_of_tracers_are_not_kept() -> None:
    with FakeTensorMode():
        fake = torch.zeros(1)
        assert type(constant([7, 8, 9], fake)) is not torch.Tensor
        assert type(multiples(5, 11, fake)) is not torch.Tensor
    like = torch.zeros(1)
    assert constant([7, 8, 9], like).tolist() == [7, 8, 9]
    assert multiples(5, 11, like).tolist() == [0, 11, 22, 33, 44]
