"""States of optimisers of one vector: they follow parameters that were replaced. Stored ones are checked, as fused steps read
memory by them without any check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from rlsdk.kernels.compiler_import import step


def require_own_state(
    make: Callable[[nn.Parameter], torch.optim.Optimizer], flat: Tensor, state: Mapping[str, object]
) -> None:
    """Raises ValueError unless `state` is what an optimiser of the parameter `flat` [D], made by `make(flat)`, remembers."""
    before, after = _states_of_one_number(make, flat)
    wanted = before if not state else after
    if set(state) != set(wanted):
        raise ValueError(f"the optimiser's state {sorted(state)} is not {sorted(wanted)}")
    for name, value in state.items():
        like = wanted[name]
        if isinstance(like, Tensor):
            shape = flat.shape if like.dim() else like.shape
            if not isinstance(value, Tensor) or (value.shape, value.dtype) != (shape, like.dtype):
                raise ValueError(f"the optimiser's {name!r} is not {like.dtype} {tuple(shape)}")
        elif type(value) is not type(like):
            raise ValueError(f"the optimiser's {name!r} is {value!r}, not a {type(like).__name__}")


def _states_of_one_number(
    make: Callable[[nn.Parameter], torch.optim.Optimizer], flat: Tensor
) -> tuple[dict[str, object], dict[str, object]]:
    """What such an optimiser remembers of a parameter [1], before and after its first step."""
    number = nn.Parameter(torch.zeros_like(flat[:1]))
    number.grad = torch.zeros_like(number)
    optimizer = make(number)
    before = dict(optimizer.state.get(number, {}))
    step(optimizer)
    return before, dict(optimizer.state.get(number, {}))


def moved_state(
    state: Mapping[str, object], flat: Tensor, before: Iterable[nn.Parameter], wanted: Sequence[nn.Parameter]
) -> dict[str, object]:
    """The state of an optimiser of `flat` [D], the parameters `before` in a row, for those that are `wanted` now: parameters
    that stay have their moments, new ones 0."""
    before, moved = list(before), dict[str, object]()
    spans = {id(p): part for p, part in zip(before, _spans(before), strict=True)}
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.shape != flat.shape:
            moved[name] = value
            continue
        moved[name] = moments = value.new_zeros(sum(parameter.numel() for parameter in wanted))
        for parameter, place in zip(wanted, _spans(wanted), strict=True):
            if id(parameter) in spans:
                moments[place] = value[spans[id(parameter)]]
    return moved


def _spans(parameters: Iterable[nn.Parameter]) -> list[slice]:
    """Where each parameter lies in the vector of all."""
    ends = list(accumulate(parameter.numel() for parameter in parameters))
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
