"""The hooks that the entry point names: environments of this package. The manifest names the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from acme_rnd.corridor import Corridor


@hookimpl
def environments() -> dict[str, Callable[..., Corridor]]:
    """Namespace -> function that makes its environments."""
    from acme_rnd.corridor import make

    return {"corridor": make}
