"""The columns that the rows of a replay buffer have: names, options, extras of policies, stacked frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.errors import PluginError, SettingsError, suggest
from rlsdk.records import Features

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


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
    # in the order of the extras and not of the names: files then have one order
    selected = {leaf: value for leaf, value in found.items() if any(_within(leaf, name) for name in names)}
    for name in names:
        if not any(_within(leaf, name) for leaf in found):
            raise SettingsError(f"the policy's extras have no {name!r} to store; {suggest(name, found)}")
    return selected


def _within(leaf: str, name: str) -> bool:
    return leaf == name or leaf.startswith(name + SEPARATOR)


def _leaves(node: object, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor [T, B, ..]) for every tensor in `node`; None is left out."""
    if isinstance(node, Tensor):
        yield path or "value", node
        return
    if isinstance(node, Mapping):
        # sorted, because two mappings with the same keys may differ in their order
        children = [(str(key), child) for key, child in sorted(node.items())]
    elif isinstance(node, tuple):
        children = [(str(number), child) for number, child in enumerate(node)]
    elif is_dataclass(node) and not isinstance(node, type):
        children = [(field.name, getattr(node, field.name)) for field in fields(node)]
    elif node is None:
        children = []
    else:
        raise PluginError(
            f"the policy's extras hold a {type(node).__name__}{f' in {path!r}' if path else ''}; extras are tensors, or"
            " records, mappings and tuples of them"
        )
    for name, child in children:
        yield from _leaves(child, f"{path}{SEPARATOR}{name}" if path else name)


NAMED = ("extras", "info")
"""Columns that are mappings of names to tensors. The first stored row determines the names."""
MEANINGLESS = ("action", "reward", "discount", "valid", "terminated", "truncated")
"""Columns without a meaning in the row that holds only the newest observation."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a replay buffer in addition to observation, action, reward, discount and `valid`."""

    extras: Names = ()
    """The names of the policy's extras that are stored, or `ALL`."""
    like: Mapping[str, Tensor] = field(default_factory=dict)
    """An example of each extra [..], so that the size of the buffer is known before the first row."""
    ends: bool = False
    """Whether `terminated` and `truncated` are stored."""
    carry: Features = None
    """An example of the collecting policy's carry, [B, ..]. One is stored at the first row of each rollout. None: no carry."""


PLAIN = Columns()
"""The options of a buffer without additional columns."""


def stacks(stored: Features, history: tuple[Tensor, Tensor], following: Tensor) -> tuple[Features, Features]:
    """(frames of observations, frames of next observations), each [N, count, *single]. The two may share memory, because most
    frames are in both with one-step targets.

    Args:
        stored: every frame of the buffer, [rows, *single].
        history: two positions int64 [N, count]: of the frames up to each row, and up to the row before the next observation.
        following: positions int64 [N] of the newest frames of the next observations.
    """
    newest = following.unsqueeze(1)
    if history[0] is history[1]:  # one step apart: both are windows of the same count + 1 frames, which are copied once
        longer = _select(stored, torch.cat([history[0], newest], 1))
        return tree.map_tensors(lambda leaf: leaf[:, :-1], longer), tree.map_tensors(lambda leaf: leaf[:, 1:], longer)
    return _select(stored, history[0]), _select(stored, torch.cat([history[1][:, 1:], newest], 1))


def _select(stored: Features, positions: Tensor) -> Features:
    """The rows [N, count, ..] of leaves [rows, ..] at `positions` int64 [N, count]; faster than indexing with a matrix."""
    flat = positions.flatten()
    return tree.map_tensors(lambda leaf: leaf.index_select(0, flat).view(*positions.shape, *leaf.shape[1:]), stored)
