"""The process in which clauses are checked. It reads ids of clauses, one at a time, and writes the result of each."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

import torch

from rlsdk.errors import RlsdkError
from rlsdk_testing.child_process import end_with_parent
from rlsdk_testing.import_state import changes, of_posix
from rlsdk_testing.kit import CheckResult, broken, clauses, named_clause, outcome_of
from rlsdk_testing.request import CheckRequest, require_settings

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl: descendants whose parent ended become children of this process, so that they are found."""


def child() -> None:
    """Run the process. What a plugin prints goes to a file; answers are written to a separate file descriptor."""
    host, leave = os.getpid(), os._exit
    commands, answers = _own_streams()
    threading.Thread(target=end_with_parent, args=(os.getppid(), _leave_with_all), daemon=True).start()
    _adopt_orphans()

    def answer(**values: object) -> None:
        answers.write(json.dumps(values).encode() + b"\n")
        answers.flush()

    with _prepared(commands.readline(), answer) as request:
        for line in commands:
            name, before = json.loads(line), surroundings()
            outcome = _outcome(name, request)
            if os.getpid() != host:  # the plugin forked this process, which returned from the plugin's code
                answer(stray=name)
                leave(0)
            answer(outcome=outcome.as_dict(), changed=changes(before, surroundings()))
    leave(0)


def surroundings() -> dict[str, object]:
    """Return name -> value of what the clauses share in this process."""
    folder = None
    with contextlib.suppress(OSError):  # it may have been removed
        folder = os.getcwd()
    return {
        "the working directory": folder,
        "sys.path": list(sys.path),
        "loaded modules": dict(sys.modules),
        "environment variables": dict(os.environ),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's default device": str(torch.get_default_device()),
        "torch's grad mode": torch.is_grad_enabled(),
        "torch's thread count": torch.get_num_threads(),
        **of_posix(),
    }


def _outcome(name: str, request: CheckRequest) -> CheckResult:
    chosen = named_clause(name)
    try:
        return outcome_of(chosen, request.algorithm, request.settings)
    except BaseException as error:  # such as KeyboardInterrupt, which only the plugin can raise here
        return broken(chosen, error)


@contextlib.contextmanager
def _prepared(line: bytes, answer: Any) -> Iterator[CheckRequest]:
    """Load the plugin, import all modules and yield the request. If loading fails, answer the error and end the process."""
    from rlsdk_testing.strategies import thoroughly

    request = CheckRequest.of_line(line)
    try:
        require_settings(request.algorithm, request.settings)
    except RlsdkError as error:
        answer(refused=str(error))
        os._exit(0)
    _warm_up()
    with thoroughly(request.thorough):
        answer(ready=True)
        yield request


def _warm_up() -> None:
    """Import the clauses, and what torch imports for its first optimizer, so that the first clause does not take longer."""
    clauses()
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def _own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Return (commands, answers): copies of standard input and output, which a plugin cannot read from or print to."""
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    return commands, answers


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def _leave_with_all(code: int) -> None:
    """End this process and all processes of its group."""
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(code)
