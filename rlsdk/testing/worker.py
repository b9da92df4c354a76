"""The process in which clauses are checked: it gets their ids one by one, and answers each with its outcome."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

import torch

from rlsdk.errors import RlsdkError
from rlsdk.registry import child_process
from rlsdk.testing.kit import CheckResult, broken, clauses, named_clause, outcome_of
from rlsdk.testing.request import Request, require_settings

SUBREAPER = 36
"""Of prctl: processes whose parent ended become this one's children, so that they are found."""


def child() -> None:
    """Body of the process. What a plugin prints goes to a file; answers go to a descriptor of their own."""
    host, leave = os.getpid(), os._exit
    commands, answers = _own_streams()
    threading.Thread(target=child_process.end_with_parent, args=(os.getppid(), _leave_with_all), daemon=True).start()
    _adopt_orphans()
    _write_stacks()

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values).encode() + b"\n")
        answers.flush()

    with _prepared(commands.readline(), answer) as request:
        for line in commands:
            name = json.loads(line)
            outcome = _outcome(name, request)
            if os.getpid() != host:  # a process that the plugin forked, and that came back from the plugin's code
                answer(stray=name)
                leave(0)
            answer(outcome=outcome.as_dict())
    leave(0)


def _outcome(name: str, request: Request) -> CheckResult:
    chosen = named_clause(name)
    try:
        return outcome_of(chosen, request.algorithm, request.settings)
    except BaseException as error:  # KeyboardInterrupt and the like: only the plugin raises it here
        return broken(chosen, error)


@contextlib.contextmanager
def _prepared(line: bytes, answer: Any) -> Iterator[Request]:
    """The request, with the plugin loaded and everything imported; an error is answered."""
    from rlsdk.testing.strategies import thoroughly

    request = Request.of_line(line)
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
    """What the first clause would wait for: the imports of the clauses, and those that torch does for the first optimiser."""
    clauses()
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def _own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """(commands, answers): standard input and output, moved to where a plugin's prints and reads do not reach them."""
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    return commands, answers


def _write_stacks() -> None:
    """Write the main thread's stack when the process crashes, and when the parent asks with `ASK_STACK`.

    `faulthandler.dump_traceback_later` is not used: its thread reads the frames of threads that run, and so can crash.
    Stacks go to a descriptor of their own, since clauses capture what is written to standard error.
    """
    errors = os.dup(2)
    faulthandler.enable(errors)
    if child_process.ASK_STACK is not None:
        faulthandler.register(child_process.ASK_STACK, errors, all_threads=False)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def _leave_with_all(code: int) -> None:
    """End this process, and those of its group."""
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(code)
