"""What the entry point names: hooks for what is no algorithm. The algorithm is named in the manifest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlsdk.registry import hookimpl


@hookimpl
def environment_makers() -> dict[str, Callable[..., Any]]:
    """Namespace -> what makes its environments."""
    from acme_constrained.environments import make

    return {"safe": make}
