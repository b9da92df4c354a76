"""The hooks that the entry point names. The manifest lists them too, so that this module is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from acme_extras.environments import Thermostat
    from acme_extras.files import NumpyFiles
    from acme_extras.sink import BestValues


@hookimpl
def serializers() -> dict[str, Callable[[], NumpyFiles]]:
    """File suffix -> function that makes its serializer."""
    from acme_extras.files import NumpyFiles

    return {".npz": NumpyFiles}


@hookimpl
def sinks() -> dict[str, Callable[..., BestValues]]:
    """Name of a sink -> function that makes it for a run directory."""
    from acme_extras.sink import BestValues

    return {"best": BestValues}


@hookimpl
def environments() -> dict[str, Callable[..., Thermostat]]:
    """Namespace -> function that makes its environments."""
    from acme_extras.environments import make

    return {"acme": make}
