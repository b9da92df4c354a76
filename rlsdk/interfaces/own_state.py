"""Functions that collect and restore the state of an object from its attributes, such as networks and optimisers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from rlsdk.interfaces.state import State, Stateful
from rlsdk.runtime.stored import put_back


def state_of(owner: object, *, without: Collection[str] = ()) -> dict[str, object]:
    """Return the state of an algorithm, plan or buffer: the states of its attributes, by name.

    Included are attributes that are a `torch.nn.Module`, an optimiser, a `torch.Generator` or a tensor, or that have
    `state_dict` and `load_state_dict`. Other attributes, also numbers, count as settings. Store a counter that must be
    saved as an int64 tensor.

    >>> class Mine:
    ...     def state_dict(self):
    ...         return state_of(self, without=["policy"])
    ...     def load_state_dict(self, state):
    ...         load_state_of(self, state, without=["policy"])

    Args:
        owner: the object.
        without: attributes that are saved elsewhere, such as the policy, which files store separately.
    """
    return {name: stored_state(value) for name, value in _parts_of(owner, without).items()}


def load_state_of(owner: object, state: Mapping[str, object], *, without: Collection[str] = ()) -> None:
    """Restore in place the state that `state_of` returned.

    Raises:
        ValueError: names, shapes or dtypes differ.
    """
    parts = _parts_of(owner, without)
    if set(parts) != set(state):
        raise ValueError(f"the state has {sorted(state)}, {type(owner).__name__} has {sorted(parts)}")
    for name, part in parts.items():
        restore_state(part, state[name])


def stored_state(part: object) -> Any:
    """Return the state of one attribute in the form that files store: nested mappings of tensors and numbers."""
    if isinstance(part, Tensor):
        return part
    if isinstance(part, Generator):
        return part.get_state()
    if isinstance(part, Optimizer):
        return {str(index): dict(values) for index, values in part.state_dict()["state"].items()}
    assert isinstance(part, Stateful)
    return dict(part.state_dict())


def restore_state(part: object, state: Any) -> None:
    """Restore the state of one attribute. Raises ValueError, KeyError or RuntimeError if the state does not fit it."""
    if isinstance(part, Tensor):
        if not isinstance(state, Tensor) or (state.shape, state.dtype) != (part.shape, part.dtype):
            raise ValueError(f"a stored tensor is not {part.dtype} of shape {tuple(part.shape)}")
        with torch.no_grad():
            part.copy_(state)
    elif isinstance(part, Generator):
        put_back(part, state)
    elif isinstance(part, Optimizer):
        _restore_optimizer(part, state)
    else:
        assert isinstance(part, Stateful)
        part.load_state_dict(state)


def _restore_optimizer(optimizer: Optimizer, state: State) -> None:
    """Load the state of each parameter, tensors of the parameter's shape or single numbers. The optimiser's settings stay."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    known = {str(index): parameter for index, parameter in enumerate(parameters)}
    for index, values in state.items():
        if index not in known:
            raise ValueError(f"the optimiser has {len(parameters)} parameters, the state has one of number {index}")
        for name, value in values.items():
            if isinstance(value, Tensor) and value.dim() and value.shape != known[index].shape:
                raise ValueError(f"{name} of parameter {index} has shape {tuple(value.shape)}")
    numbered = {int(index): dict(state[index]) for index in known if index in state}
    optimizer.load_state_dict({"state": numbered, "param_groups": optimizer.state_dict()["param_groups"]})


def _parts_of(owner: object, without: Collection[str]) -> dict[str, object]:
    """The attributes that have a state."""
    kinds = (nn.Module, Optimizer, Generator, Tensor)
    own = {name: value for name, value in vars(owner).items() if name not in without}
    return {name: value for name, value in own.items() if isinstance(value, kinds) or _stateful(value)}


def _stateful(value: object) -> bool:
    return not isinstance(value, type) and isinstance(value, Stateful)
