"""Checks of the tensors that vector environments return."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.errors import EnvironmentFault, shown
from rlsdk.spaces import Space, dtype_of, map_leaves, shape_of


def require_tensor(value: object, shape: tuple[int, ...], dtype: torch.dtype, device: str, what: str) -> None:
    """Raises EnvironmentFault unless `value` is a tensor of this shape, dtype and kind of device."""
    kind = device.partition(":")[0]
    if isinstance(value, Tensor) and value.shape == shape and value.dtype == dtype and value.device.type == kind:
        return
    where = "" if kind == "cpu" else f" on {device}"
    if not isinstance(value, Tensor):
        got = shown(value)
    elif value.device.type == kind:
        got = f"{value.dtype} {tuple(value.shape)}"
    else:
        got, where = f"{value.dtype} {tuple(value.shape)} on {value.device}", f" on {device}"
    raise EnvironmentFault(f"{what}: got {got}, not a tensor {dtype} {shape}{where}")


def require_features(space: Space, features: object, rows: int, device: str, what: str) -> None:
    """Raises EnvironmentFault unless `features` are tensors [rows, ..] with the shapes and dtypes of the space. Messages begin
    with `what`."""

    def check(path: str, leaf: Space, value: object) -> None:
        require_tensor(value, (rows, *shape_of(leaf)), getattr(torch, dtype_of(leaf)), device, f"{what}{path}")

    try:
        map_leaves(space, check, features)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise EnvironmentFault(f"{what}features {shown(features)} are not nested as the space") from None
