"""Apply a function to every tensor of a nested value: record, mapping, tuple, tensor or None.

Mappings are visited by sorted key, so that two of them with the same keys always line up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
_Path = tuple[tuple[str | int, bool], ...]
"""How a leaf is reached: names, keys and positions, and whether they are names of fields."""


def map_tensors(function: Callable[..., Tensor], first: T, *rest: T) -> T:
    """A tree like `first` whose leaves [..] are `function(leaf of first, leaves of rest...)`; None stays None.

    Raises:
        TypeError: a leaf is neither tensor nor None.
    """
    node: object = first
    others: tuple[Any, ...] = rest  # nested as `first` is; no cast: this runs for every record of every step
    found: Any
    if (names := _RECORDS[node.__class__]) is not None:  # the commonest
        found = node.__class__(
            *[map_tensors(function, getattr(node, n), *[getattr(r, n) for r in others]) for n in names]
        )
    elif node is None or isinstance(node, Tensor):
        found = node if node is None else function(node, *others)
    elif isinstance(node, Mapping):
        found = {k: map_tensors(function, v, *(r[k] for r in others)) for k, v in sorted(node.items())}
    elif isinstance(node, tuple):
        found = tuple(map_tensors(function, v, *(r[i] for r in others)) for i, v in enumerate(node))
    else:
        raise _no_tree(node)
    mapped: T = found
    return mapped


def stack(nodes: Sequence[T]) -> T:
    """One tree of trees nested alike, whose leaves [..] become [T, ..]."""
    if (names := _RECORDS[nodes[0].__class__]) is None:
        return map_tensors(lambda *leaves: torch.stack(leaves), *nodes)
    return nodes[0].__class__(*[stack(list(map(attrgetter(name), nodes))) for name in names])


def _no_tree(node: object) -> TypeError:
    return TypeError(f"{type(node).__name__} is not a tree of tensors (record, mapping, tuple, tensor or None)")


def builder(node: object) -> Callable[[Iterator[Tensor]], Any]:
    """A function that makes trees nested as `node` is from their leaves [..] in order, faster than `map_tensors` can."""
    if node is None:
        return lambda _: None
    if isinstance(node, Tensor):
        return next
    if isinstance(node, Mapping):
        entries = [(key, builder(child)) for key, child in sorted(node.items())]
        return lambda found: {key: make(found) for key, make in entries}
    if isinstance(node, tuple):
        parts = [builder(child) for child in node]
        return lambda found: tuple([make(found) for make in parts])
    kind: Callable[..., object] = node.__class__
    if (names := _RECORDS[node.__class__]) is None:
        raise _no_tree(node)
    fields = [builder(getattr(node, name)) for name in names]
    return lambda found: kind(*[make(found) for make in fields])


def picker(node: object) -> Callable[[object], Sequence[Tensor]]:
    """`leaves` [..] for trees nested as `node` is, faster where there are many of them."""
    paths = list(_paths(node))
    if len(paths) > 1 and all(is_field for steps in paths for _, is_field in steps):
        return attrgetter(*(".".join(str(name) for name, _ in steps) for steps in paths))

    def pick(value: object) -> list[Tensor]:
        found = []
        for steps in paths:
            leaf: Any = value
            for name, is_field in steps:
                leaf = getattr(leaf, str(name)) if is_field else leaf[name]
            found.append(leaf)
        return found

    return pick


def _paths(node: object, before: _Path = ()) -> Iterator[_Path]:
    """How each leaf is reached: names, and whether they are fields."""
    if isinstance(node, Tensor):
        yield before
    elif isinstance(node, Mapping):
        for key, child in sorted(node.items()):
            yield from _paths(child, (*before, (key, False)))
    elif isinstance(node, tuple):
        for i, child in enumerate(node):
            yield from _paths(child, (*before, (i, False)))
    else:
        for name in _RECORDS[node.__class__] or ():
            yield from _paths(getattr(node, name), (*before, (name, True)))


def split(node: T, size: int) -> Iterator[T]:
    """Parts of `size` rows (the last may be smaller), views of the leaves."""
    make = builder(node)
    parts = zip(*(torch.split(leaf, size) for leaf in leaves(node)), strict=True)
    return map(make, map(iter, parts))


def leaves(node: object) -> list[Tensor]:
    """The tensors [..] of a tree, in the order in which `map_tensors` visits them."""
    found: list[Tensor] = []
    _gather(node, found)
    return found


def _gather(node: object, found: list[Tensor]) -> None:
    if (names := _RECORDS[node.__class__]) is not None:  # the commonest
        for name in names:
            _gather(getattr(node, name), found)
    elif isinstance(node, Tensor):
        found.append(node)
    elif isinstance(node, tuple):
        for value in node:
            _gather(value, found)
    elif isinstance(node, Mapping):
        for _, value in sorted(node.items()):
            _gather(value, found)
    elif node is not None:
        raise _no_tree(node)


class _Records(dict[type, tuple[str, ...] | None]):
    """The fields of records by class, found when it is first seen; None for what is none."""

    def __missing__(self, kind: Any) -> tuple[str, ...] | None:
        known = dataclasses.is_dataclass(kind)
        self[kind] = tuple(field.name for field in dataclasses.fields(kind)) if known else None
        return self[kind]


_RECORDS = _Records()


def number(node: object) -> dict[str, Tensor]:
    """The leaves [..] as a mapping "000" -> first, "001" -> second, ..., for writing to files."""
    return {f"{i:03d}": leaf for i, leaf in enumerate(leaves(node))}


def numbered(mapping: Mapping[str, Tensor]) -> list[Tensor]:
    """The leaves [..] that `number` named, in their order (files list them in another)."""
    return [leaf for _, leaf in sorted(mapping.items())]


def flatten(node: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A nested mapping as one flat one, keys joined by '/'; an empty mapping stays as it is."""
    flat: dict[str, object] = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{name}/"))
        else:
            flat[name] = value
    return flat


def unflatten(flat: Mapping[str, object]) -> dict[str, object]:
    """The inverse of `flatten`. Raises ValueError when a name is that of a value and of a table."""
    nested: dict[str, object] = {}
    for name, value in flat.items():
        *path, last = name.split("/")
        node = nested
        for part in path:
            table = node.setdefault(part, {})
            if not isinstance(table, dict):
                raise ValueError(f"{name!r} lies inside a value")
            node = table
        if last in node:
            raise ValueError(f"{name!r} is a value and a table")
        node[last] = value
    return nested
