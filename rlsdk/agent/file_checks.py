"""Checks of the content of a file before it is loaded into an agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.errors import ArtifactError, SettingsError, UnsupportedSpaceError, UsageError, one_line
from rlsdk.interfaces import BuildContext, State
from rlsdk.networks.numpy_encoder import encoded_slices
from rlsdk.spaces import Dict, Space, Tuple, choice_places, dtype_of, from_json, leaf_spaces, to_json


@contextmanager
def blaming_the_file(own: bool) -> Iterator[None]:
    """Turn errors about settings, spaces and buffers inside the block into errors about the file.

    `own`: whether the settings are the file's; errors about settings that the caller changed are raised unchanged.
    """
    try:
        yield
    except (SettingsError, UnsupportedSpaceError, UsageError) as error:
        if not own:
            raise
        raise ArtifactError(f"the file is damaged, or of another version of its algorithm: {error}") from None


def bytes_of(sections: Mapping[str, object]) -> int:
    """The number of bytes of the tensors in `sections`."""
    return sum(leaf.nbytes for leaf in tree.flatten(sections).values() if isinstance(leaf, Tensor))


def require_finite(mine: State, stored: State, where: str) -> None:
    """Raise ArtifactError if a stored tensor has NaN or infinite values, unless the new agent has the same ones.

    Training raises an error at such values before it could save them.
    """
    own = tree.flatten(mine)
    for name, value in tree.flatten(stored).items():
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
            built = own.get(name)
            if not isinstance(built, Tensor) or built.shape != value.shape or not torch.equal(built.cpu(), value):
                raise ArtifactError(f"the file is damaged: {name} of its {where} holds NaN or infinity")


SPACES = ("observation_space", "action_space")
"""Entries of manifests with the spaces of an agent."""


def spaces_of(context: BuildContext) -> dict[str, object]:
    """The spaces of an agent as manifests hold them, without those that have no entries."""
    spaces = {name: getattr(context, name) for name in SPACES}
    return {name: to_json(space) for name, space in spaces.items() if isinstance(space, Dict | Tuple)}


def require_same_entries(document: Mapping[str, object], context: BuildContext) -> None:
    """Check that recorded steps have the entries of Dicts and Tuples that the agent has, which its buffer finds by sorted key.

    Raises:
        ArtifactError: they have others, or discrete actions in another order, in which stored action masks count them.
    """
    for name in SPACES:
        if document.get(name) is None:  # it has no Dict or Tuple
            continue
        space, stored = getattr(context, name), from_json(document[name])
        paths = [{path for path, _ in leaf_spaces(each)} for each in (space, stored)]
        if paths[0] != paths[1] or (name == "action_space" and choice_places(space, stored) is not None):
            raise ArtifactError(
                f"the file holds steps with the entries {_entries(stored)} of the {name.replace('_', ' ')}, the agent has"
                f" {_entries(space)}; load it into an agent with the same entries in the same order"
            )


def require_same_places(document: Mapping[str, object], context: BuildContext) -> None:
    """Check that weights and statistics, which belong to entries of Dicts and Tuples by position, belong to the same ones here.

    `document` has the spaces of the stored agent, as `spaces_of` returns them. Their entries must be the first ones of the
    agent's spaces.

    Raises:
        ArtifactError: they are others, or in another order.
    """
    for name in SPACES:
        space = getattr(context, name)
        if document.get(name) is None or not isinstance(space, Dict | Tuple):
            continue
        stored = from_json(document[name])
        if type(space) is not type(stored):
            continue
        mine, theirs = (encoded_slices(each) for each in (space, stored))
        kinds = [[(path, type(leaf), dtype_of(leaf)) for path, leaf in leaf_spaces(each)] for each in (space, stored)]
        ends = [list(slices.values())[-1].stop for slices in (mine, theirs)]
        if kinds[0][: len(theirs)] != kinds[1] or (ends[0] == ends[1] and mine != theirs):
            raise ArtifactError(
                f"the stored weights belong to the entries {_entries(stored)} of the {name.replace('_', ' ')} by position, and"
                f" the agent has {_entries(space)}; load_policy(file, env) takes over the order of the file, and needs an"
                " environment with all of its entries"
            )


def _entries(space: Space) -> str:
    """The entries of a nested space and the number of their values, in order."""
    parts = (f"{path} of {part.stop - part.start}" for path, part in encoded_slices(space, "").items())
    return one_line(", ".join(parts), 200)


def require_same_shapes(mine: State, stored: State, where: str) -> None:
    """Raise ArtifactError if the stored weights have other names or shapes than those of `mine`."""
    shapes = [
        {name: value.shape for name, value in tree.flatten(state).items() if isinstance(value, Tensor)}
        for state in (mine, stored)
    ]
    if shapes[0] != shapes[1]:
        raise ArtifactError(f"the file is damaged: its {where} has weights of other shapes than its policy")
