"""The hooks that the entry point names: environments of this package. The manifest names the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from acme_constrained.environments import Sprint


@hookimpl
def environments() -> dict[str, Callable[..., Sprint]]:
    """Namespace -> function that makes its environments."""
    from acme_constrained.environments import make

    return {"safe": make}
