"""hypothesis strategies that generate spaces, settings and tensors for checks of plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs
import numpy as np
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from rlsdk.settings import structure, unstructure

EXAMPLES, THOROUGH = 15, 300
"""The number of examples for each property, without and with `--thorough`."""
_count: ContextVar[int] = ContextVar("examples", default=EXAMPLES)


def is_thorough() -> bool:
    """Return whether the checks run with `--thorough`."""
    return _count.get() == THOROUGH


def examples(check: Callable[..., None]) -> Callable[..., None]:
    """Decorate a hypothesis test with the kit's profile: it tries the same examples every time and writes no files."""
    quiet = {"deadline": None, "database": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
    return settings(max_examples=_count.get(), **quiet)(check)  # type: ignore[arg-type]


@contextmanager
def thoroughly(wanted: bool = True) -> Iterator[None]:
    """Inside the `with` statement, try many more examples for each property, unless `wanted` is False."""
    token = _count.set(THOROUGH if wanted else _count.get())
    try:
        yield
    finally:
        _count.reset(token)


@st.composite
def box_spaces(draw: Any, *, bounded: bool = True, max_size: int = 4) -> Any:
    """Generate float Box spaces of 1 to `max_size` numbers with asymmetric bounds; `high` may be infinite unless `bounded`."""
    size = draw(st.integers(1, max_size))
    edge = st.floats(-1e3, 1e3, width=32)
    width = st.floats(0.0625, 1e3, width=32)
    low = np.array(draw(st.lists(edge, min_size=size, max_size=size)), np.float32)
    high = low + np.array(draw(st.lists(width, min_size=size, max_size=size)), np.float32)
    if not bounded and draw(st.booleans()):
        high = np.full_like(high, np.inf)
    return spaces.Box(low, high, dtype=np.float32)


def discrete_spaces() -> st.SearchStrategy[Any]:
    """Return a strategy for Discrete spaces, also with a start other than 0."""
    return st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 6), st.integers(-3, 3))


def leaf_spaces() -> st.SearchStrategy[Any]:
    """Return a strategy for spaces that are not nested."""
    sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3)
    return st.one_of(
        box_spaces(bounded=False),
        discrete_spaces(),
        st.builds(spaces.MultiDiscrete, sizes),
        st.builds(spaces.MultiBinary, st.integers(1, 5)),
    )


def nested_spaces() -> st.SearchStrategy[Any]:
    """Return a strategy for spaces that may be nested: Dict and Tuple spaces with up to five spaces in them."""
    keys = st.text("abcdef_.", min_size=1, max_size=4)

    def grow(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        tables = st.dictionaries(keys, children, min_size=1, max_size=3).map(spaces.Dict)
        return st.one_of(tables, st.lists(children, min_size=1, max_size=3).map(spaces.Tuple))

    return st.recursive(leaf_spaces(), grow, max_leaves=5)


@st.composite
def configs(draw: Any, kind: type[Any], policy: str) -> Any:
    """Generate valid objects of a config class: defaults, with accepted other values for some numbers and switches."""
    values = unstructure(structure({"policy": policy}, kind))
    names = [f.name for f in attrs.fields(kind) if isinstance(values[f.name], bool | int | float)]
    for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=5)):
        changed = {**values, name: draw(_other(values[name]))}
        try:
            structure(changed, kind)
        except ValueError:  # outside the range of this field, or in conflict with another one: the old value stays
            continue
        values = changed
    return structure(values, kind)


def _other(value: Any) -> st.SearchStrategy[Any]:
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int):
        return st.integers(min(value, 0), max(value, 0) * 2 + 1)
    return st.floats(min(value / 2, value), max(value, value * 2), allow_nan=False)


def tensors() -> st.SearchStrategy[torch.Tensor]:
    """Return a strategy for tensors of up to three dimensions, [0 .. 4] each, in the dtypes that agents contain."""
    shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    dtypes = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool])
    return st.builds(_filled, shapes, dtypes, st.integers(0, 2**16))


def _filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.int64:
        return torch.randint(-(2**62), 2**62, shape, generator=generator)
    return (torch.randn(shape, generator=generator) * 10).to(dtype)
