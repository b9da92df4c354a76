"""Checks that tensors are still where compiled code reads them.

Without torch's `TensorGuards`, which are not public, the checks take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.errors import UsageError


class Memory:
    """The addresses of tensors [..] and how they are read, at one time, to check later whether this is still so.

    Addresses alone do not: `weight.data = weight.data.T` and `weight.data = weight.data.reshape(..)` keep them.
    """

    def __init__(self, tensors: Sequence[Tensor] | None = None) -> None:
        """`tensors` [..] of any shapes. None: nothing was read yet, and `is_that_of` is always False."""
        self.addresses = None if tensors is None else list(map(Tensor.data_ptr, tensors))
        self.read_alike = _reading(tensors or ())
        """A function of as many tensors that is True only if they have the same shapes, strides and dtypes."""

    def is_that_of(self, tensors: Sequence[Tensor]) -> bool:
        """Whether as many tensors [..] have these addresses, and the same shapes, strides and dtypes."""
        return self.addresses == list(map(Tensor.data_ptr, tensors)) and self.read_alike(*tensors)

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return Memory, ()  # addresses must not be copied


def _layouts(*tensors: Tensor) -> list[tuple[object, ...]]:
    return [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors]


def _reading(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Return a function for `read_alike`, of tensors [..].

    It may also be False for other reasons, such as inference mode. One call of torch's guards is as fast as `is_contiguous` of
    each tensor; comparing takes five times as long.
    """
    if _guards is None or not tensors:
        layouts = _layouts(*tensors)
        return lambda *now: _layouts(*now) == layouts
    firsts = [next(i for i, other in enumerate(tensors) if other is tensor) for tensor in tensors]
    places = sorted(set(firsts))
    check = _guards([tensors[i] for i in places])
    if len(places) == len(tensors):
        return check
    # torch's guards refuse a tensor that is given twice, as both moments of RMSprop are
    return lambda *now: (
        all(now[i] is each for i, each in zip(firsts, now, strict=True)) and check(*map(now.__getitem__, places))
    )


def _torch_guards(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    from torch._C._dynamo.guards import TensorGuards  # not public, so it may be missing

    make: Callable[..., Any] = TensorGuards  # the stubs of torch declare other arguments
    sizes, strides = [list(tensor.size()) for tensor in tensors], [list(tensor.stride()) for tensor in tensors]
    check: Callable[..., bool] = make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def _known_guards() -> Callable[[Sequence[Tensor]], Callable[..., bool]] | None:
    """Return `_torch_guards`, of tensors [..], if this torch has them and they notice every change, else None."""
    tensor = torch.zeros(2, 2, device="cpu")
    parameter, others = nn.Parameter(tensor), (tensor.T, tensor.view(4), tensor[:1], tensor.view(torch.int32))
    try:
        check, also = _torch_guards((tensor,)), _torch_guards((parameter,))
        with torch.no_grad():  # in which kernels ask
            works = check(tensor) and also(parameter) and not any(map(check, others))
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError, SystemError):
        return None
    return _torch_guards if works else None


_guards = _known_guards()


def require_memory(tensors: Iterable[Tensor]) -> None:
    """Raises UsageError if the storage of a tensor [..] ends before the tensor does, as after `storage.resize_(0)`."""
    for tensor in tensors:
        places = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
        size = (tensor.storage_offset() + sum(places) + 1) * tensor.element_size() if tensor.numel() else 0
        if size > (held := tensor.untyped_storage().nbytes()):
            raise UsageError(
                f"a parameter, gradient or moment of the policy has lost its memory: {list(tensor.shape)} needs {size} bytes,"
                f" its storage holds {held}; give the storage its size back, or load the agent again"
            )
