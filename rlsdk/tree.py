"""Apply a function to every tensor of a nested value: record, mapping, tuple, tensor or None.

Mappings are visited by sorted key, so that two of them with the same keys always line up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
_Path = tuple[str | tuple[Hashable], ...]
"""How a leaf is reached: names of fields, and keys and positions as (key,)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How trees nested alike are taken apart and put together. It is found once for each way of nesting: the few trees of a
    short rollout would take longer to walk through than their leaves take to compute."""

    pick: Callable[[object], Iterable[Tensor]]
    """The leaves [..] of such a tree, in order."""
    build: Callable[[Iterator[Tensor]], Any]
    """A tree of leaves [..] in order."""


def layout(node: object) -> Layout:
    """The layout of trees nested as `node` is.

    Raises:
        TypeError: a leaf is neither tensor nor None.
    """
    return _layout(_nesting(node))


def map_tensors(function: Callable[..., Tensor], first: T, *rest: T) -> T:
    """A tree like `first` whose leaves [..] are `function(leaf of first, leaves of rest...)`; None stays None.

    Raises:
        TypeError: a leaf is neither tensor nor None.
    """
    node: Any = first  # no cast: this runs for every record of every step
    found: Any
    if rest:
        nested = layout(node)
        found = nested.build(map(function, nested.pick(node), *map(nested.pick, rest)))
    elif (names := _RECORDS[node.__class__]) is not None:  # one tree is walked through faster than its layout is found
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
    """One tree of trees nested alike, whose leaves [..] become [T, ..]."""
    nested = layout(nodes[0])
    found: T = nested.build(map(torch.stack, zip(*map(nested.pick, nodes), strict=True)))
    return found


def _no_tree(node: object) -> TypeError:
    return TypeError(f"{type(node).__name__} is not a tree of tensors (record, mapping, tuple, tensor or None)")


def _nesting(node: object) -> Hashable:
    """The structure of a tree, hashable: `Tensor` or None for a leaf, else the class, the keys of a mapping, and the structures
    of the children."""
    if (names := _RECORDS[node.__class__]) is not None:  # the commonest
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
    """Makes what is reached by `path`; adds to `paths` how each leaf is."""
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
    """Parts of `size` rows (the last may be smaller), views of the leaves."""
    nested = layout(node)
    parts = zip(*(torch.split(leaf, size) for leaf in nested.pick(node)), strict=True)
    return map(nested.build, map(iter, parts))


def leaves(node: object) -> list[Tensor]:
    """The tensors [..] of a tree, in the order in which `map_tensors` visits them."""
    return list(layout(node).pick(node))


def is_finite(node: object) -> bool:
    """Whether no number in the leaves [..] of a tree is NaN or infinite."""
    return all(bool(leaf.isfinite().all()) for leaf in leaves(node) if leaf.is_floating_point())


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
