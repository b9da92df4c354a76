"""python -m tests.planted    plants each bug, runs the kit on it, stores the results and writes the page"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

from tests.planted import BUGS, authors, fresh
from tests.planted.bug import Bug
from tests.planted.copies import Copy
from tests.planted.kinds import KINDS
from tests.planted.looking import LOADING, Task, look
from tests.planted.page import PAGE, page
from tests.planted.results import (
    STORED_FRESH,
    Result,
    is_current,
    kit_digest,
    store,
    store_run,
    stored,
    stored_runs,
    without,
)

LIMIT = 150.0
"""The usual time limit for one bug, in seconds by the clock."""
Failures = dict[str, str]
"""Id of a clause -> the message with which it failed."""


class Search:
    """A process that looks for a bug in a copy of the sources, or that tries a clause in a copy without a bug."""

    def __init__(self, copy: Copy, bug: Bug | None, task: Task) -> None:
        """task: what the process does. Its paths are empty here; those of the copy are used."""
        self.copy, self.bug, self.task = copy, bug, task
        self.failures, self.running = Failures(), ""
        self.began, self.ended = time.monotonic(), 0.0
        self._stack = ExitStack()
        self._stack.enter_context(copy.with_bug(bug))
        context = get_context("fork")
        self.receiver, sender = context.Pipe(duplex=False)
        self.process: ForkProcess = context.Process(target=look, args=(replace(task, paths=copy.paths), sender))
        self.process.start()
        sender.close()

    @property
    def seconds(self) -> float:
        """The time in seconds that the search took, or has taken until now."""
        return (self.ended or time.monotonic()) - self.began

    def read(self) -> bool:
        """Read one message from the process; return whether there was one."""
        try:
            identity, found = self.receiver.recv()
        except EOFError:
            return False
        self.running = identity
        if found is not None:
            self.failures[identity] = found
        return True

    def end(self) -> None:
        """Stop the process and all its child processes, and remove the bug from the copy."""
        self.ended = time.monotonic()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.join()
        self.receiver.close()
        self._stack.close()


class Searches:
    """Searches in parallel, one in each copy.

    A clause that fails is also tried without the bug, once for each algorithm. If it fails there too, its failure
    proves nothing: the search for the bug is repeated without this clause.
    """

    def __init__(self, tasks: Iterable[tuple[Bug, Task]], copies: Sequence[Copy], limit: float) -> None:
        self.limit = limit
        self.waiting: deque[tuple[Bug | None, Task]] = deque(tasks)
        self.free, self.running = list(copies), dict[Connection, Search]()
        self.holds: dict[tuple[str, str], bool | None] = {}
        """(algorithm, clause) -> whether the clause holds without a bug; None while this is being tried."""
        self.unsure: list[Search] = []
        """Ended searches whose result does not count yet: the clause that failed may fail without the bug too."""

    def ended(self) -> Iterator[Search]:
        """Yield each search for a bug when it has a result that counts."""
        while self.waiting or self.running:
            while self.waiting and self.free:
                started = Search(self.free.pop(), *self.waiting.popleft())
                self.running[started.receiver] = started
            ready = set(wait(list(self.running), timeout=1.0))
            for receiver, search in list(self.running.items()):
                if (receiver in ready and not search.read()) or search.seconds > self.limit:
                    search.end()
                    del self.running[receiver]
                    self.free.append(search.copy)
                    yield from self._judged(search)

    def _judged(self, search: Search) -> Iterator[Search]:
        if search.bug is None:
            (clause,) = search.task.groups
            self.holds[search.task.algorithm, clause] = not search.failures
            if LOADING in search.failures:
                sys.exit(f"{search.task.algorithm} does not load without a bug: {search.failures[LOADING]}")
            if search.failures:
                print(f"{search.task.algorithm:<20} breaks {clause} without a bug: {search.failures}", flush=True)
        else:
            self.unsure.append(search)
        for one in list(self.unsure):
            failed = next(iter(one.failures), None)
            name = one.task.algorithm
            holds = failed is None or self.holds.get((name, failed))
            if holds is None:
                if (name, failed) not in self.holds and failed is not None:
                    self.holds[name, failed] = None
                    self.waiting.appendleft((None, Task(name, (), (), (), (failed,))))
                continue
            self.unsure.remove(one)
            if holds:
                yield one
            else:
                self.waiting.append((one.bug, replace(one.task, passed_over=[*one.task.passed_over, failed or ""])))


def result_of(search: Search, bug: Bug, limit: float) -> Result:
    """The result of an ended search, as it is stored."""
    for identity, detail in search.failures.items():
        return Result(bug.digest, identity, " ".join(detail.split())[:300], kit_digest())
    tried = "every clause that was tried" if search.task.groups else "every clause"
    why = f"{search.running} takes more than {limit:.0f} s" if search.seconds > limit else f"{tried} holds"
    return Result(bug.digest, None, why, kit_digest())


def run(bugs: Sequence[Bug], options: argparse.Namespace) -> None:
    """Look for each of `bugs`, and store each result at once. If only some clauses are tried and none finds the bug,
    its earlier result stays."""
    import gymnasium  # noqa: F401  # imported once, because the processes are forks of this one
    import hypothesis  # noqa: F401
    import torch

    torch.set_num_threads(1)
    results = _known(options)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copies = [Copy(Path(folder) / str(k)) for k in range(options.jobs)]
        chosen = [(bug, KINDS[bug.kind] if options.likely else options.clauses) for bug in bugs]
        tasks = [(bug, _task(bug, results.get(bug.id), own, options.without)) for bug, own in chosen]
        for search in Searches(tasks, copies, options.limit).ended():
            assert search.bug is not None
            bug, result = search.bug, result_of(search, search.bug, options.limit)
            if result.clause or not options.clauses:
                results[bug.id] = result
            found = result.clause or f"NOT FOUND: {result.detail}"
            print(f"{bug.algorithm:<20} {search.seconds:6.1f} s  {bug.id:<60} {found}", flush=True)
            if options.half and options.store and bug.id in results:
                store_run(_name(options), {bug.id: results[bug.id]})
            elif not options.dry:
                store(results)


def _known(options: argparse.Namespace) -> dict[str, Result]:
    """Return id of a bug -> its stored result."""
    if not options.half:
        return stored() | stored(STORED_FRESH)
    run = stored_runs().get(_name(options))
    return dict(run.results) if run else {}


def _name(options: argparse.Namespace) -> str:
    """The name of the run of a half, as it is stored."""
    return without(options.half, options.without) if options.without else str(options.half)


def _offered(options: argparse.Namespace) -> Sequence[Bug]:
    """The bugs to choose from. With `--without`, those that one of these clauses found."""
    if not options.half:
        return {"A": fresh.HALF_A, "B": fresh.HALF_B}.get(options.fresh, BUGS)
    found = stored_runs()[options.half].results if options.without else {}
    return [bug for bug in authors.half(options.half) if not options.without or found[bug.id].clause in options.without]


def _task(bug: Bug, before: Result | None, groups: Sequence[str], left_out: Sequence[str]) -> Task:
    recorded = [before.clause] if before is not None and before.clause else []
    return Task(bug.algorithm, (), [*recorded, *KINDS[bug.kind]], left_out, groups)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one bug: give more on a busy machine")
    parser.add_argument("--only", nargs="+", default=[], help="ids, kinds or algorithms")
    parser.add_argument("--fresh", choices=["A", "B"], help="the bugs of this half of `tests.planted.fresh` instead")
    parser.add_argument(
        "--half", choices=authors.HALVES, help="this half of `tests.planted.authors`; stored with --store"
    )
    parser.add_argument("--store", action="store_true", help="with --half: store its results, and write the page")
    parser.add_argument(
        "--without", nargs="+", default=[], help="with --half: leave these clauses out, for bugs that one of them found"
    )
    parser.add_argument("--new", action="store_true", help="bugs without a result of their present text")
    parser.add_argument("--missed", action="store_true", help="bugs that were not found")
    parser.add_argument("--clauses", nargs="+", default=[], help="try only clauses whose ids begin so")
    parser.add_argument("--likely", action="store_true", help="try only clauses for the kind of the bug")
    parser.add_argument("--dry", action="store_true", help="store nothing, and leave the page as it is")
    parser.add_argument("--page", action="store_true", help="write the page of the stored results, and do nothing else")
    options = parser.parse_args()
    options.dry |= options.half is not None and not options.store
    results = _known(options)
    chosen = [
        bug
        for bug in _offered(options)
        if (not options.only or {bug.id, bug.kind, bug.algorithm} & set(options.only))
        and not (options.new and is_current(bug, results))
        and not (options.missed and bug.id in results and results[bug.id].clause is not None)
    ]
    if not options.page:
        if not chosen:
            sys.exit("no bug is left: change --only, or leave out --new and --missed")
        run(chosen, options)
    if not options.dry:
        PAGE.write_text(page(stored()))


if __name__ == "__main__":
    main()
