"""Translates errors that Ray raises while it sends or fetches objects into errors of rlsdk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ray import exceptions

from rlsdk.errors import ResourceError, RlsdkError, WorkError
from rlsdk_parallel import unsendable
from rlsdk_ray.connection import nodes
from rlsdk_ray.pieces import cause_of


@contextmanager
def sending(what: str) -> Iterator[None]:
    """A context manager that translates errors while `what` is given to Ray.

    Raises:
        ResourceError: the object store and the disk behind it are full. WorkError: `what` cannot be pickled.
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
    """The error for `what` that does not fit into the object store."""
    return ResourceError(
        f"{what} does not fit into the object store of Ray, {smallest_store() / 1e6:.0f} MB, nor on the disk behind it"
        f" ({type(error).__name__}); start Ray with a larger --object-store-memory, or make smaller items"
    )


def not_fetched(index: int, error: exceptions.RayError) -> RlsdkError:
    """The error for an item that could not be sent, or whose result could not be fetched."""
    inner = getattr(error, "cause", None) or error
    if isinstance(inner, exceptions.ObjectStoreFullError | exceptions.OutOfDiskError):
        return full(f"item {index} or its result", inner)
    return WorkError(
        f"item {index} could not be sent to a node or its result not be fetched: {cause_of(error)}; give a function that a"
        " module holds, and items and results of plain values, arrays and records"
    )


def smallest_store() -> float:
    """The size in bytes of the smallest object store of the cluster; infinite if no node names a size."""
    sizes = [node["Resources"].get("object_store_memory", 0.0) for node in nodes()]
    return min((size for size in sizes if size), default=float("inf"))
