"""What the entry point names: hooks for what is not an algorithm. The algorithm is named in the manifest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from acme_constrained.environments import Sprint


@hookimpl
def environment_makers() -> dict[str, Callable[..., Sprint]]:
    """Namespace -> what makes its environments."""
    from acme_constrained.environments import make

    return {"safe": make}
