"""The connection of this process to Ray: one that is there, an address, or a Ray of its own on this machine."""

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
"""Until an address that does not answer is given up."""


TIMED_OUT = "timed out during startup"
"""In Ray's message where its processes were not ready within 30 seconds."""


class _Session:
    """Whether this module started or joined Ray, and how many executors use it."""

    def __init__(self) -> None:
        self.ours, self.users, self.lock = False, 0, threading.RLock()
        self.guard: Callable[[], None] | None = None
        """Ends the process that watches over a Ray of this program."""


_session = _Session()


def enter(address: str | None = None) -> None:
    """Connect this process to Ray, unless it is connected; each call is followed by one of `leave`.

    Args:
        address: `host:port` or `auto`; None: that of RAY_ADDRESS, else a Ray of this process on this machine.

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
    """The opposite of `enter`: the last one ends what `enter` began, and nothing else."""
    with _session.lock:
        _session.users -= 1
        if _session.ours and _session.users <= 0:
            _session.ours, _session.users = False, 0
            ray.shutdown()
            if _session.guard is not None:
                _session.guard()


def total() -> dict[str, float]:
    """The resources of all nodes together, name -> amount."""
    found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return found


def nodes() -> list[dict[str, Any]]:
    """The nodes that are alive, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def capacity() -> int:
    """CPUs of the Ray that `enter` would use.

    Raises:
        SettingsError: there is no Ray at the address.
    """
    if not ray.is_initialized() and os.environ.get(ADDRESS) in (None, "", "local"):
        return os.cpu_count() or 1
    enter()
    try:
        return max(1, int(total().get("CPU", 1)))
    finally:
        with _session.lock:  # stays connected: the executor that is made next uses it
            _session.users -= 1


def _connect(address: str | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address in (None, "local"):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault(
            "RAY_worker_niceness", "0"
        )  # Ray's own is 15: other programs would leave the work little time
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
    """Start a Ray on this machine. Ray gives its processes 30 seconds, which is too short on a busy machine: it tries again.

    Raises:
        SettingsError: none can be started.
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
    """Raises SettingsError where no Ray answers at an address, within seconds."""
    if address == "auto":
        return  # Ray looks on this machine, which takes no time
    if address.startswith("ray://"):
        raise SettingsError(
            f"{address} is an address of Ray's client, which cannot be used here; start the program on a node of the"
            " cluster with RAY_ADDRESS=auto, for example with `ray job submit`"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise SettingsError(f"{address!r} is no address of a Ray; give host:port, such as 10.0.0.1:6379, or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SECONDS) as connection:
            found = os.environ.get("RAY_USE_TLS") == "1" or _is_grpc(connection)
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"no Ray answers at {address}, {_SOURCE}: {error}; is it `ray start --head` there?"
        ) from None
    if not found:
        raise SettingsError(
            f"what answers at {address}, {_SOURCE}, is not the head of a Ray; its port is 6379 by default"
        )


_SOURCE = "the address in RAY_ADDRESS or in the argument `address`"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a connection of gRPC, which the head of Ray speaks, begins: RFC 9113, section 3.4; the settings are empty."""
_FRAME, _SETTINGS = 9, 4


def _is_grpc(connection: socket.socket) -> bool:
    """Whether the other side answers as gRPC does. `ray.init` would try others for minutes, and then end this process."""
    connection.sendall(_PREFACE)
    connection.settimeout(SECONDS)
    answer = connection.recv(_FRAME)
    return len(answer) == _FRAME and answer[3] == _SETTINGS
