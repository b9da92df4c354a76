"""Checks that a stored state is one of an optimiser: fused steps read memory by it without any check."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


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
    with torch.no_grad():
        optimizer.step()
    return before, dict(optimizer.state.get(number, {}))
