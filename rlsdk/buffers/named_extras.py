"""Flattens the extras of a policy, which may be a record, mapping or tuple, into named tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Literal

from torch import Tensor

from rlsdk.errors import PluginError, SettingsError, suggest

Names = tuple[str, ...] | Literal["all"]
"""The extras that are stored: their names, or "all"."""
ALL: Literal["all"] = "all"
SEPARATOR = "."


def named_extras(extras: object, names: Names) -> dict[str, Tensor]:
    """The tensors [T, B, ..] of `extras` that `names` selects, by name.

    The name of a tensor is its field, key or position; names of nested values are joined by dots. A name in `names` selects
    everything below it: `carry` selects `carry.0` and `carry.1`.

    Raises:
        SettingsError: the extras have no tensor of a name. PluginError: a value in the extras is not a tensor.
    """
    found = dict(_leaves(extras, ""))
    if names == ALL:
        return found
    selected = {leaf: value for leaf, value in found.items() if any(_within(leaf, name) for name in names)}
    for name in names:
        if not any(_within(leaf, name) for leaf in found):
            raise SettingsError(f"the policy's extras have no {name!r} to store; {suggest(name, found)}")
    return selected


def _within(leaf: str, name: str) -> bool:
    return leaf == name or leaf.startswith(name + SEPARATOR)


def _leaves(node: object, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor [T, B, ..]) for every tensor in `node`; None is left out."""
    if node is None:
        return
    if isinstance(node, Tensor):
        yield path or "value", node
        return
    for name, child in _children(node, path):
        yield from _leaves(child, f"{path}{SEPARATOR}{name}" if path else name)


def _children(node: object, path: str) -> list[tuple[str, object]]:
    if isinstance(node, Mapping):
        return [(str(key), child) for key, child in sorted(node.items())]
    if isinstance(node, tuple):
        return [(str(number), child) for number, child in enumerate(node)]
    if is_dataclass(node) and not isinstance(node, type):
        return [(field.name, getattr(node, field.name)) for field in fields(node)]
    raise PluginError(
        f"the policy's extras hold a {type(node).__name__}{f' in {path!r}' if path else ''}; extras are tensors, or records,"
        " mappings and tuples of them"
    )
