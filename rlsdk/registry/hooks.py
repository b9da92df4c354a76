"""The hook a plugin module implements. A plugin marks its function with `hookimpl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from rlsdk.registry.spec import AlgorithmSpec

PROJECT = "rlsdk"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def algorithm() -> AlgorithmSpec:  # type: ignore[empty-body]  # a hook specification has no body
    """Return the plugin's `AlgorithmSpec`. Importing the module and calling this must import no torch."""
