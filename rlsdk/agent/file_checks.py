"""Checks of the content of a file before it is loaded into an agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.errors import ArtifactError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.interfaces import State


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


def require_same_shapes(mine: State, stored: State, where: str) -> None:
    """Raise ArtifactError if the stored weights have other names or shapes than those of `mine`."""
    shapes = [
        {name: value.shape for name, value in tree.flatten(state).items() if isinstance(value, Tensor)}
        for state in (mine, stored)
    ]
    if shapes[0] != shapes[1]:
        raise ArtifactError(f"the file is damaged: its {where} has weights of other shapes than its policy")
