"""The `info` of a gymnasium vector environment, one array per key, as one mapping per environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FINAL = ("final_obs", "final_info")
"""Where same-step autoreset puts the last observations and infos of episodes that ended."""


def infos_of(infos: Mapping[str, Any], count: int, ended: NDArray[np.bool_] | None = None) -> list[dict[str, object]]:
    """One mapping per environment.

    Args:
        infos: as a vector environment gives them: key -> array [B], and `_key` -> bool [B], which environments have it.
        count: B.
        ended: bool [B], with same-step autoreset: rows whose own info is in `final_info`.
    """
    rows = _rows({name: value for name, value in infos.items() if name.removeprefix("_") not in FINAL}, count)
    if ended is not None and ended.any():
        final = infos.get("final_info")
        last = _rows(final, count) if isinstance(final, Mapping) else list(final if final is not None else rows)
        for i in np.flatnonzero(ended):
            rows[i] = dict(last[i])
    return rows


def _rows(infos: Mapping[str, Any], count: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{} for _ in range(count)]
    for name, values in infos.items():
        if name.startswith("_") and name[1:] in infos:
            continue  # a mask: which environments have the key without the underscore
        present = infos.get(f"_{name}")
        entries = _rows(values, count) if isinstance(values, Mapping) else values
        if not hasattr(entries, "__len__") or len(entries) != count:
            entries = [entries] * count  # one value for all of them
        for i in range(count):
            if present is None or present[i]:
                rows[i][name] = entries[i]
    return rows
