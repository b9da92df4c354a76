"""Several runs at the same time: where they run, their progress and their results."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import attrs
import typer

from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.executors import SerialExecutor, capacity, make_executor
from rlsdk.interfaces import Executor
from rlsdk.runs import RunDirectory, RunRequest, run
from rlsdk.runtime import is_quiet, print_line, quietly

LOCAL = ("in-process", "processes")
"""The executors that run on the cores of this machine."""


@attrs.frozen(kw_only=True)
class SeedResult:
    """The result of one seed. `error` is None if the run finished; `mean` is None if it failed or had no environment."""

    seed: int
    folder: Path
    mean: float | None = None
    std: float | None = None
    error: str | None = None
    interrupted: bool = False
    """Whether Ctrl-C or a signal ended the run early. The run is saved."""


def jobs_for(wanted: int | None, count: int, threads: int | None, executor: str = "processes") -> int:
    """Return the number of runs at the same time: `wanted`, limited by the number of seeds and by the available cores.

    Every run needs `threads` cores. For executors of plugins, the executor counts the cores and refuses a number that is too
    large.

    Raises:
        SettingsError: `wanted` is less than one, or there is no such executor.
    """
    if wanted is not None and wanted < 1:
        raise SettingsError(f"--jobs {wanted} must be a positive whole number")
    most = capacity(executor)
    if executor not in LOCAL:
        return min(wanted or max(1, most // (threads or 1)), count)
    room = max(1, (os.cpu_count() or 1) // (threads or 1))
    if wanted is not None and wanted > room:
        reason = f"{os.cpu_count()} cores, {threads or 1} torch thread(s) per run"
        print_line(f"--jobs {wanted} reduced to {room}: {reason}", sys.stderr)
    return min(wanted or room, room, count)


def run_all(requests: Mapping[str, RunRequest], executor: Executor, shared: Path | None = None) -> list[SeedResult]:
    """Run every request that is not finished yet, and print a line about each. A run that fails does not stop the others.

    Args:
        requests: name in messages -> request, with a run directory `out` and a seed in its settings.
        executor: what runs them. A run writes its output to `log.txt` in its run directory.
        shared: a file of this program which every machine of the executor must see; None: no check.

    Returns:
        The results, in the order of the requests.

    Raises:
        KeyboardInterrupt: a run was interrupted in this process. No other run begins.
        SettingsError: a machine does not see `shared`.
    """
    here = isinstance(executor, SerialExecutor)  # there Ctrl-C ends a run, and `_reported` raises it again afterwards
    work = partial(_run_named, quiet=is_quiet(), shared=shared, here=here)
    return executor.map(work, list(requests.items()))


def _run_named(named: tuple[str, RunRequest], *, quiet: bool, shared: Path | None, here: bool) -> SeedResult:
    if shared is not None:
        require_shared(shared)
    with quietly(quiet):
        return _reported(*named, here=here)


@contextlib.contextmanager
def interrupted(how_to_go_on: str) -> Iterator[None]:
    """End the command with one line of text and exit code 130 if the user presses Ctrl-C inside the block."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(f"interrupted; {how_to_go_on}", sys.stderr)
        raise typer.Exit(130) from None


def require_shared(file: Path) -> None:
    """Check that the machine that does the work sees a file of the program.

    Raises:
        SettingsError: it does not, so results would be lost.
    """
    if not file.exists():
        raise SettingsError(
            f"machine {socket.gethostname()} does not see {file}, so its results would be lost; give the full path of a"
            " folder that all machines share with --out"
        )


def _reported(name: str, request: RunRequest, *, here: bool) -> SeedResult:
    """Return `finished(request)`, and print a line about it that begins with `name`. RlsdkErrors become part of the result.

    Raises as `run_all`.
    """
    assert request.out is not None
    try:
        result = finished(request)
        came = result.error or "finished" if result.mean is None else f"return {result.mean:.2f} +- {result.std:.2f}"
        if not is_quiet():
            # standard output may be JSON
            print_line(f"{name}: {came}", sys.stderr)
    except RlsdkError as error:
        print_line(f"{name} failed: {error}", sys.stderr)
        return SeedResult(seed=request.settings["seed"], folder=request.out, error=str(error))
    if result.interrupted and here:
        raise KeyboardInterrupt
    return result


def finished(request: RunRequest) -> SeedResult:
    """Return the result of a run. If it is not finished, resume it or start it first.

    Raises:
        RlsdkError: as `run`.
    """
    assert request.out is not None
    directory = RunDirectory(request.out)
    done = directory.read_record() if directory.record.exists() else None
    # the last round of a run may exceed its steps
    trained = 0 if done is None else max(done.steps, directory.trained_steps)
    if done is None or done.status != "finished" or trained < (request.steps or 0):
        if done is not None and not directory.checkpointed:
            with directory.taken_up():
                directory.start_over()  # the run was stopped before its first checkpoint
        run_quietly(request.to_resume() if directory.checkpointed else attrs.evolve(request, resume=False))
        done = directory.read_record()
        if done.status == "interrupted":
            why = f"interrupted at step {directory.trained_steps:,}, and saved"
            return SeedResult(seed=request.settings["seed"], folder=request.out, error=why, interrupted=True)
    if (score := done.final_evaluation) is None:
        if done.env is None:
            return SeedResult(seed=request.settings["seed"], folder=request.out)
        raise SettingsError(f"{directory.record} is damaged: it has no final_evaluation")
    return SeedResult(seed=request.settings["seed"], folder=request.out, mean=score.mean, std=score.std)


def run_quietly(request: RunRequest) -> None:
    """Call `run` with standard output and standard error in `log.txt` of its folder."""
    assert request.out is not None
    request.out.mkdir(parents=True, exist_ok=True)
    with (
        # Appended: a resumed run continues the log.
        open(request.out / "log.txt", "a", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        run(request)


@contextlib.contextmanager
def open_workers(executor: str, jobs: int, folders: Mapping[str, Path]) -> Iterator[Executor]:
    """Yield the executor of that name with `jobs` workers, and close it after the block.

    Inside the block, SIGTERM and SIGHUP act like Ctrl-C. The progress of the work is printed from time to time: the newest line
    of `log.txt` in each of the `folders`, name in messages -> folder.

    Raises:
        SettingsError: there is no such executor.
    """
    made = make_executor(executor, jobs)
    before = {number: signal.signal(number, signal.default_int_handler) for number in _ending()}
    try:
        with watching(folders):
            yield made
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        made.close()
        if repeated := getattr(made, "repeated", 0):
            print_line(f"work was repeated {repeated} times, as a process or a machine died", sys.stderr)


def _ending() -> list[signal.Signals]:
    """Return the signals that stop work, without those that are ignored: `nohup` ignores the hang-up of a terminal.

    There are none outside the main thread, because Python changes handlers in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [number for number in known if signal.getsignal(number) != signal.SIG_IGN]


SECONDS = 10.0
"""Seconds between two reads of the logs."""
LAST_BYTES = 400


@contextlib.contextmanager
def watching(folders: Mapping[str, Path], seconds: float = SECONDS) -> Iterator[None]:
    """Inside the block, print a line for each run that has made progress since the last read. `folders`: name -> run directory.

    Logs that this machine does not see, such as those of an executor on other machines, are left out.
    """
    if is_quiet():
        yield
        return
    stop, shown = threading.Event(), {name: _progress(folder / "log.txt") for name, folder in folders.items()}
    # A daemon, because a thread that waits must not delay the end of the process.
    watcher = threading.Thread(target=_watch, args=(dict(folders), shown, stop, seconds), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _watch(folders: Mapping[str, Path], shown: dict[str, str], stop: threading.Event, seconds: float) -> None:
    while not stop.wait(seconds):
        for name, folder in folders.items():
            line = _progress(folder / "log.txt")
            if line and line != shown[name]:
                shown[name] = line
                print_line(f"{name}: {line}", sys.stderr)


def _progress(log: Path) -> str:
    """Return the newest line about steps in a log; "" if there is none."""
    try:
        with log.open("rb") as stream:
            # Only the end: a log may be large, and it is read every ten seconds.
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LAST_BYTES))
            # The first byte that is read may be inside a character.
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((" ".join(line.split()) for line in reversed(lines) if " steps " in line and " left" in line), "")
