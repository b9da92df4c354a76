"""Apply a function to every tensor of a nested value: record, mapping, tuple, tensor or None.

Mappings are visited by sorted key, so that two of them with the same keys always line up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
_Path = tuple[tuple[str | int, bool], ...]
"""How a leaf is reached: names, keys and positions, and whether they are names of fields."""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How trees nested alike are taken apart and put together. It is found once for each way of nesting: the few trees of a
    short rollout would take longer to walk through than their leaves take to compute."""

    pick: Callable[[object], Sequence[Tensor]]
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
    mapped: Any
    if rest:
        nested = layout(first)
        mapped = nested.build(map(function, nested.pick(first), *map(nested.pick, rest)))
    else:  # a single tree is walked through in less time than its layout is found
        mapped = _mapped(function, first)
    found: T = mapped
    return found


def _mapped(function: Callable[[Tensor], Tensor], node: Any) -> Any:
    """`map_tensors` of one tree."""
    if (names := _RECORDS[node.__class__]) is not None:  # the commonest
        return node.__class__(*[_mapped(function, getattr(node, name)) for name in names])
    if node is None:
        return None
    if isinstance(node, Tensor):
        return function(node)
    if isinstance(node, Mapping):
        return {key: _mapped(function, child) for key, child in sorted(node.items())}
    if isinstance(node, tuple):
        return tuple([_mapped(function, child) for child in node])
    raise _no_tree(node)


def stack(nodes: Sequence[T]) -> T:
    """One tree of trees nested alike, whose leaves [..] become [T, ..]."""
    nested = layout(nodes[0])
    found: T = nested.build(map(torch.stack, zip(*map(nested.pick, nodes), strict=True)))
    return found


def _no_tree(node: object) -> TypeError:
    return TypeError(f"{type(node).__name__} is not a tree of tensors (record, mapping, tuple, tensor or None)")


def _nesting(node: object) -> Any:
    """How a tree is nested, as a value to look up: `Tensor`, None, or a class, the keys of a mapping, and what is inside."""
    if (names := _RECORDS[node.__class__]) is not None:  # the commonest
        return (node.__class__, *[_nesting(getattr(node, name)) for name in names])
    if node is None:
        return None
    if isinstance(node, Tensor):
        return Tensor
    if isinstance(node, Mapping):
        entries = sorted(node.items())
        return (dict, tuple([key for key, _ in entries]), *[_nesting(child) for _, child in entries])
    if isinstance(node, tuple):
        return (tuple, *map(_nesting, node))
    raise _no_tree(node)


@lru_cache(256)
def _layout(nesting: Any) -> Layout:
    return Layout(_picker(list(_paths(nesting))), _builder(nesting))


def _builder(nesting: Any) -> Callable[[Iterator[Tensor]], Any]:
    if nesting is None:
        return lambda _: None
    if nesting is Tensor:
        return next
    kind, *children = nesting
    if kind is dict:
        entries = list(zip(children[0], map(_builder, children[1:]), strict=True))
        return lambda found: {key: make(found) for key, make in entries}
    parts = list(map(_builder, children))
    if kind is tuple:
        return lambda found: tuple([make(found) for make in parts])
    return lambda found: kind(*[make(found) for make in parts])


def _paths(nesting: Any, before: _Path = ()) -> Iterator[_Path]:
    """How each leaf is reached."""
    if nesting is None:
        return
    if nesting is Tensor:
        yield before
        return
    kind, *children = nesting
    names: Iterable[str | int] = _RECORDS[kind] or range(len(children))
    if kind is dict:
        names, *children = children
    for name, child in zip(names, children, strict=True):
        yield from _paths(child, (*before, (name, kind not in (dict, tuple))))


def _picker(paths: list[_Path]) -> Callable[[object], Sequence[Tensor]]:
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


def split(node: T, size: int) -> Iterator[T]:
    """Parts of `size` rows (the last may be smaller), views of the leaves."""
    nested = layout(node)
    parts = zip(*(torch.split(leaf, size) for leaf in nested.pick(node)), strict=True)
    return map(nested.build, map(iter, parts))


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
