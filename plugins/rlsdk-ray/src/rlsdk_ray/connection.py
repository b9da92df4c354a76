"""The connection of this process to Ray: an existing one, one to an address, or to a Ray started on this machine."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import ray

from rlsdk.errors import SettingsError, one_line
from rlsdk_ray.guard import watch

ADDRESS = "RAY_ADDRESS"
SECONDS = 5.0
"""Seconds to wait for an answer from an address."""


TIMED_OUT = "timed out during startup"
"""Part of Ray's error message if its processes were not ready within 30 seconds."""


class _Session:
    """Whether this module started or joined Ray, and how many executors use it."""

    def __init__(self) -> None:
        self.ours, self.users, self.lock = False, 0, threading.RLock()
        self.guard: Callable[[], None] | None = None
        """Ends the process that `rlsdk_ray.guard.watch` started, for a Ray that this program started."""


_session = _Session()


def enter(address: str | None = None) -> None:
    """Connect this process to Ray, unless it is connected. Each call must be followed by a call of `leave`.

    Args:
        address: `host:port` or `auto`; None: the address in RAY_ADDRESS, else start a Ray on this machine.

    Raises:
        SettingsError: there is no Ray at the address, or none can be started.
    """
    with _session.lock:
        if not ray.is_initialized():
            _connect(address or os.environ.get(ADDRESS) or None)
            _session.ours, _session.users = True, 0
        elif address and not _session.ours:
            raise SettingsError(f"this process is connected to a Ray already; leave out address = {address!r}")
        _session.users += 1


def leave() -> None:
    """Undo one call of `enter`. The last call disconnects from Ray, if `enter` connected this process."""
    with _session.lock:
        _session.users -= 1
        if _session.ours and _session.users <= 0:
            _session.ours, _session.users = False, 0
            ray.shutdown()
            if _session.guard is not None:
                _session.guard()


def total() -> dict[str, float]:
    """The resources of all nodes together, as name -> amount."""
    found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return found


def nodes() -> list[dict[str, Any]]:
    """The nodes that are alive, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def capacity() -> int:
    """The number of CPUs of the Ray that `enter` would use.

    Raises:
        SettingsError: there is no Ray at the address.
    """
    if not ray.is_initialized() and os.environ.get(ADDRESS) in (None, "", "local"):
        return os.cpu_count() or 1
    enter()
    try:
        return max(1, int(total().get("CPU", 1)))
    finally:
        with _session.lock:  # the connection stays open for the executor that is made next
            _session.users -= 1


def _connect(address: str | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address in (None, "local"):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's default is 15: next to other programs the work would be slow
        os.environ.setdefault("RAY_worker_niceness", "0")
        _start(quiet)
        _session.guard = watch()
        return
    assert address is not None
    require_answer(address)
    try:
        ray.init(address=address, **quiet)
    except Exception as error:
        raise SettingsError(f"cannot join the Ray at {address}: {one_line(error, 300)}") from None


def _start(quiet: dict[str, Any]) -> None:
    """Start a Ray on this machine. If Ray's processes are not ready within its 30 seconds, as on a busy machine, try once more.

    Raises:
        SettingsError: Ray cannot be started.
    """
    for last in (False, True):
        try:
            ray.init(address="local", include_dashboard=False, **quiet)
            return
        except Exception as error:
            ray.shutdown()
            if last or TIMED_OUT not in str(error):
                raise SettingsError(f"no Ray can be started on this machine: {one_line(error, 300)}") from None


def require_answer(address: str) -> None:
    """Raise SettingsError if no Ray answers at `address` within seconds."""
    if address == "auto":
        return  # Ray searches this machine, which is fast
    if address.startswith("ray://"):
        raise SettingsError(
            f"{address} is an address of Ray's client, which cannot be used here; start the program on a node of the"
            " cluster with RAY_ADDRESS=auto, for example with `ray job submit`"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise SettingsError(
            f"{address!r} is not the address of a Ray cluster; give host:port, such as 10.0.0.1:6379, or auto"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SECONDS) as connection:
            found = os.environ.get("RAY_USE_TLS") == "1" or _is_grpc(connection)
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"no Ray answers at {address}, {_SOURCE}: {error}; is it `ray start --head` there?"
        ) from None
    if not found:
        raise SettingsError(
            f"the program at {address}, {_SOURCE}, is not the head of a Ray cluster; its port is 6379 by default"
        )


_SOURCE = "the address in RAY_ADDRESS or in the argument `address`"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The first bytes of a gRPC (HTTP/2) connection, with empty settings: RFC 9113, section 3.4. The head of Ray uses gRPC."""
_FRAME, _SETTINGS = 9, 4


def _is_grpc(connection: socket.socket) -> bool:
    """Whether the other side answers as gRPC does. With another service `ray.init` retries for minutes and then ends this
    process."""
    connection.sendall(_PREFACE)
    connection.settimeout(SECONDS)
    answer = connection.recv(_FRAME)
    return len(answer) == _FRAME and answer[3] == _SETTINGS
