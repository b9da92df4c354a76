"""Functions for trees of tensors. A tree is a tensor, None, or a record (dataclass or named tuple), mapping or tuple of trees.

Mappings are visited by sorted key, so that the leaves of two mappings with the same keys have the same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = ["flatten", "layout", "leaves", "map_tensors", "number", "stack", "unflatten"]

T = TypeVar("T")
_Path = tuple[str | tuple[Hashable], ...]
"""The steps from the root of a tree to a leaf: a field as its name, a key or position as (key,)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Two functions that flatten and rebuild trees of the same structure. A layout is found once per structure and cached:
    traversing the trees of a short rollout would take longer than computing on their leaves."""

    pick: Callable[[object], Iterable[Tensor]]
    """Return the leaves [..] of such a tree, in order."""
    build: Callable[[Iterator[Tensor]], Any]
    """Return the tree whose leaves [..], in order, are those given."""


def layout(node: object) -> Layout:
    """The layout of trees with the structure of `node`.

    Raises:
        TypeError: a leaf is neither tensor nor None.
    """
    return _layout(_nesting(node))


def map_tensors(function: Callable[..., Tensor], first: T, *rest: T) -> T:
    """A tree like `first` whose leaves [..] are `function(leaf of first, leaves of rest...)`; None stays None.

    Raises:
        TypeError: a leaf is neither tensor nor None.
    """
    # an annotation, not a cast, to save time: this runs for every record of every step
    node: Any = first
    found: Any
    if rest:
        nested = layout(node)
        found = nested.build(map(function, nested.pick(node), *map(nested.pick, rest)))
    elif (names := _RECORDS[node.__class__]) is not None:
        # traversing one tree is faster than finding its layout
        found = node.__class__(*[map_tensors(function, getattr(node, name)) for name in names])
    elif node is None or isinstance(node, Tensor):
        found = node if node is None else function(node)
    elif isinstance(node, Mapping):
        found = {key: map_tensors(function, child) for key, child in sorted(node.items())}
    elif isinstance(node, tuple):
        found = tuple([map_tensors(function, child) for child in node])
    else:
        raise _no_tree(node)
    mapped: T = found
    return mapped


def stack(nodes: Sequence[T]) -> T:
    """Stack T trees of the same structure into one: leaves [..] become [T, ..]."""
    nested = layout(nodes[0])
    found: T = nested.build(map(torch.stack, zip(*map(nested.pick, nodes), strict=True)))
    return found


def _no_tree(node: object) -> TypeError:
    return TypeError(f"{type(node).__name__} is not a tree of tensors (record, mapping, tuple, tensor or None)")


def _nesting(node: object) -> Hashable:
    """The structure of a tree as a hashable value: `Tensor` or None for a leaf, else a tuple of the class, the keys of a
    mapping, and the structures of the children."""
    if (names := _RECORDS[node.__class__]) is not None:
        # the most frequent case
        return (node.__class__, *[_nesting(getattr(node, name)) for name in names])
    if node is None or isinstance(node, Tensor):
        return node if node is None else Tensor
    if isinstance(node, Mapping):
        entries = sorted(node.items())
        return (dict, tuple([key for key, _ in entries]), *[_nesting(child) for _, child in entries])
    if isinstance(node, tuple):
        return (tuple, *map(_nesting, node))
    raise _no_tree(node)


@lru_cache(256)
def _layout(nesting: Hashable) -> Layout:
    paths: list[_Path] = []
    build = _builder(nesting, (), paths)
    # One call in C for all leaves. With a single name it would return the leaf itself, not a tuple.
    if len(paths) > 1 and all(type(step) is str for steps in paths for step in steps):
        return Layout(attrgetter(*(".".join(map(str, steps)) for steps in paths)), build)
    getters = [[attrgetter(step) if type(step) is str else itemgetter(*step) for step in steps] for steps in paths]

    def pick(node: Any) -> list[Tensor]:
        found = []
        for steps in getters:
            leaf = node
            for step in steps:
                leaf = step(leaf)
            found.append(leaf)
        return found

    return Layout(pick, build)


def _builder(nesting: Hashable, path: _Path, paths: list[_Path]) -> Callable[[Iterator[Tensor]], object]:
    """Return the function that builds the subtree at `path`, and append the path of each of its leaves to `paths`."""
    if nesting is None:
        return lambda _: None
    if not isinstance(nesting, tuple):
        paths.append(path)
        return next
    kind, *children = nesting
    keys = children.pop(0) if kind is dict else range(len(children))
    steps: Iterable[str | tuple[Hashable]] = _RECORDS[kind] or [(key,) for key in keys]
    parts = [_builder(child, (*path, step), paths) for child, step in zip(children, steps, strict=True)]
    if kind is dict:
        return lambda found: {key: make(found) for key, make in zip(keys, parts, strict=True)}
    if kind is tuple:
        return lambda found: tuple([make(found) for make in parts])
    return lambda found: kind(*[make(found) for make in parts])


def split(node: T, size: int) -> Iterator[T]:
    """Split a tree along the first dimension into trees of `size` rows (the last may be smaller); their leaves are views."""
    nested = layout(node)
    parts = zip(*(torch.split(leaf, size) for leaf in nested.pick(node)), strict=True)
    return map(nested.build, map(iter, parts))


def leaves(node: object) -> list[Tensor]:
    """The tensors [..] of a tree, in the order in which `map_tensors` visits them."""
    return list(layout(node).pick(node))


def is_finite(node: object) -> bool:
    """Whether all numbers in the leaves [..] of a tree are finite."""
    return all(bool(leaf.isfinite().all()) for leaf in leaves(node) if leaf.is_floating_point())


class _Records(dict[type, tuple[str, ...] | None]):
    """Class -> the names of its fields, found at the first access; None for other classes."""

    def __missing__(self, kind: Any) -> tuple[str, ...] | None:
        names = getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
        names = tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else names
        return self.setdefault(kind, names)


_RECORDS = _Records()


def number(node: object) -> dict[str, Tensor]:
    """The leaves [..] as a mapping "000" -> first, "001" -> second, ..., for writing to files."""
    # Leading zeros, because files sort names as text.
    return {f"{i:03d}": leaf for i, leaf in enumerate(leaves(node))}


def numbered(mapping: Mapping[str, Tensor]) -> list[Tensor]:
    """The leaves [..] that `number` named, in the original order (files may list them in another order)."""
    return [leaf for _, leaf in sorted(mapping.items())]


def flatten(node: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A nested mapping as a flat one, with keys joined by '/'. Empty mappings are left in place as values."""
    flat: dict[str, object] = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        # An empty mapping has no leaves, and would be lost.
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{name}/"))
        else:
            flat[name] = value
    return flat


def unflatten(flat: Mapping[str, object]) -> dict[str, object]:
    """The inverse of `flatten`. Raises ValueError if the same name belongs to a value and to a mapping."""
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
