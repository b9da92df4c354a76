"""The state of an optimiser of one flat vector: checks of stored states, and updates after parameters were replaced.

Stored states are checked because fused optimiser steps access memory without checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from rlsdk.kernels.compiler_import import step
from rlsdk.updates.optimizer_choice import Maker


def own_state(make: Maker, flat: Tensor, state: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of `state` on the devices on which an optimiser made by `make([flat])` has it, for a vector `flat` [D].

    Raises:
        ValueError: it is not the state of such an optimiser.
    """
    before, after = _states_of_one_number(make, flat)
    wanted = before if not state else after
    if set(state) != set(wanted):
        raise ValueError(f"the optimiser's state {sorted(state)} is not {sorted(wanted)}")
    found = dict(state)
    for name, value in state.items():
        like = wanted[name]
        if isinstance(like, Tensor):
            shape = flat.shape if like.dim() else like.shape
            if not isinstance(value, Tensor) or (value.shape, value.dtype) != (shape, like.dtype):
                raise ValueError(f"the optimiser's {name!r} is not {like.dtype} {tuple(shape)}")
            found[name] = value.to(like.device, copy=True)
        elif type(value) is not type(like):
            raise ValueError(f"the optimiser's {name!r} is {value!r}, not a {type(like).__name__}")
    return found


def _states_of_one_number(make: Maker, flat: Tensor) -> tuple[dict[str, object], dict[str, object]]:
    """The states of such an optimiser for a parameter [1], before and after its first step."""
    number = nn.Parameter(torch.zeros_like(flat[:1]))
    number.grad = torch.zeros_like(number)
    optimizer = make([number])
    before = dict(optimizer.state.get(number, {}))
    step(optimizer)
    return before, dict(optimizer.state.get(number, {}))


def moved_state(
    state: Mapping[str, object], flat: Tensor, before: Iterable[nn.Parameter], wanted: Sequence[nn.Parameter]
) -> dict[str, object]:
    """Convert the state of an optimiser of `flat` [D] from the parameters `before` to the parameters `wanted`.

    Both are concatenated into one vector. Parameters that are in both retain their moments; new ones have 0.
    """
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
    """The slice of each parameter in the vector of all parameters."""
    ends = list(accumulate(parameter.numel() for parameter in parameters))
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
