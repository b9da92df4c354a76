"""Errors of Ray while something is sent or fetched, as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ray import exceptions

from rlsdk.errors import ResourceError, RlsdkError, WorkError
from rlsdk.executors import unsendable
from rlsdk_ray.connection import nodes
from rlsdk_ray.pieces import cause_of


@contextmanager
def sending(what: str) -> Iterator[None]:
    """Inside, something is given to Ray.

    Raises:
        ResourceError: the object store and the disk behind it are full. WorkError: it cannot be pickled.
    """
    try:
        yield
    except (RlsdkError, exceptions.WorkerCrashedError):
        raise
    except (exceptions.ObjectStoreFullError, exceptions.OutOfDiskError) as error:
        raise full(what, error) from error
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise unsendable(what, type(error)(lines[0]) if isinstance(error, TypeError) else error) from error


def full(what: str, error: Exception) -> ResourceError:
    """The error where the object store has no room."""
    return ResourceError(
        f"{what} does not fit into the object store of Ray, {smallest_store() / 1e6:.0f} MB, nor on the disk behind it"
        f" ({type(error).__name__}); start Ray with a larger --object-store-memory, or make smaller items"
    )


def not_fetched(index: int, error: exceptions.RayError) -> RlsdkError:
    """The error for an item or a result that did not come through."""
    inner = getattr(error, "cause", None) or error
    if isinstance(inner, exceptions.ObjectStoreFullError | exceptions.OutOfDiskError):
        return full(f"item {index} or its result", inner)
    return WorkError(
        f"item {index} could not be sent to a node or its result not be fetched: {cause_of(error)}; give a function that a"
        " module holds, and items and results of plain values, arrays and records"
    )


def smallest_store() -> float:
    """Bytes of the smallest object store of the cluster."""
    sizes = [node["Resources"].get("object_store_memory", 0.0) for node in nodes()]
    return min((size for size in sizes if size), default=float("inf"))
