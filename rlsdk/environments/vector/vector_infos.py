"""Conversion of the `info` of a gymnasium vector environment, one array per key, to one mapping per environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FINAL = ("final_obs", "final_info")
"""The keys under which same-step autoreset stores the last observations and infos of episodes that ended."""


@runtime_checkable
class Entries(Protocol):
    """Values that are read by position: a list, tuple, array or tensor."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


def infos_of(
    infos: Mapping[str, object], count: int, ended: NDArray[np.bool_] | None = None
) -> list[dict[str, object]]:
    """The infos of a vector environment as one mapping per environment.

    Args:
        infos: key -> array [B], and `_key` -> bool [B], True for the environments that have the key.
        count: B, the number of environments.
        ended: bool [B], with same-step autoreset: True for the environments whose info is in `final_info`.
    """
    rows = _rows({name: value for name, value in infos.items() if name.removeprefix("_") not in FINAL}, count)
    if ended is not None and ended.any():
        final = infos.get("final_info")
        last = _rows(final, count) if isinstance(final, Mapping) else entries_in(final, count) or rows
        for i in np.flatnonzero(ended).tolist():
            own = last[i]
            rows[i] = dict(own) if isinstance(own, Mapping) else {}
    return rows


def _rows(infos: Mapping[str, object], count: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{} for _ in range(count)]
    for name, values in infos.items():
        if name.startswith("_") and name[1:] in infos:
            continue  # a mask of the environments that have the key without the underscore
        present = entries_in(infos.get(f"_{name}"), count)
        entries = _rows(values, count) if isinstance(values, Mapping) else entries_in(values, count)
        entries = [values] * count if entries is None else entries  # one value for all environments
        for i in range(count):
            if present is None or present[i]:
                rows[i][name] = entries[i]
    return rows


def entries_in(values: object, count: int) -> Entries | None:
    """`values`, if it has one value for each of `count` environments; else None."""
    if isinstance(values, str | bytes) or not isinstance(values, Entries) or len(values) != count:
        return None
    return values
