"""Clauses about executors: `in-process`, `processes`, executors of plugins, and `package.module:function`.

@pytest.mark.parametrize("clause", rlsdk_testing.executor_clauses(), ids=str)
def test_contract(clause): rlsdk_testing.verify_executor("cluster", clause)
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs
import numpy as np

from rlsdk.errors import ContractViolation, RlsdkError, SettingsError, WorkError, message_of, suggest
from rlsdk.executors import make_executor
from rlsdk.interfaces import Executor, ability
from rlsdk_parallel import HasStatefulWorkers
from rlsdk_testing import executor_work as work
from rlsdk_testing.executor_users import candidates_equal, collectors_equal, evaluation_equal, seeds_equal
from rlsdk_testing.kit import require
from rlsdk_testing.not_applicable import NotApplicable

LARGE, VERY_LARGE = 1_000_000, 37_500_000
"""The number of float64 entries of arrays: 8 MB and 300 MB."""
MOST_BEGUN, MOST_RUNS = 20, 10
"""How many of 100 items may begin if the first one fails, and how often a deadly item may be tried."""


@attrs.frozen
class ExecutorClause:
    """One testable rule for executors: `id`, the rule as a sentence, and a function that raises if an executor breaks it."""

    id: str
    statement: str
    check: Callable[[ExecutorSubject], None]

    def __str__(self) -> str:
        return self.id


@attrs.frozen
class ExecutorSubject:
    """The name of the executor under test, and its number of workers."""

    name: str
    workers: int = 2

    @contextmanager
    def made(self) -> Iterator[Executor]:
        """Make the executor; it is closed at the end of the `with` statement."""
        executor = make_executor(self.name, self.workers)
        try:
            yield executor
        finally:
            executor.close()


_clauses: dict[str, ExecutorClause] = {}


def executor_clauses(*, slow: bool = False) -> tuple[ExecutorClause, ...]:
    """Return the clauses about executors: with `slow` those that need much time or memory, otherwise the other ones."""
    return tuple(c for c in _clauses.values() if (c.id in SLOW) == slow)


def verify_executor(name: str, wanted: ExecutorClause | str, *, workers: int = 2) -> None:
    """Check one clause of the executor called `name`. Nothing is raised if the clause holds or does not apply.

    Raises:
        ContractViolation: the executor breaks the clause. SettingsError: there is no such clause or executor.
    """
    if isinstance(wanted, str) and wanted not in _clauses:
        raise SettingsError(f"there is no clause {wanted!r} of executors; {suggest(wanted, _clauses)}")
    chosen = _clauses[wanted] if isinstance(wanted, str) else wanted
    try:
        chosen.check(ExecutorSubject(name, workers))
    except NotApplicable:
        return
    except ContractViolation as error:
        raise ContractViolation(f"executor {name!r} breaks {chosen.id} ({chosen.statement}): {error}") from error


def clause(
    identity: str, statement: str
) -> Callable[[Callable[[ExecutorSubject], None]], Callable[[ExecutorSubject], None]]:
    """Return a decorator that registers a check function as the clause `identity`."""

    def register(check: Callable[[ExecutorSubject], None]) -> Callable[[ExecutorSubject], None]:
        _clauses[identity] = ExecutorClause(identity, statement, check)
        return check

    return register


@clause(
    "executor.order",
    "`map` returns one result for each item, in the order of the items. Without items it returns no results.",
)
def order(subject: ExecutorSubject) -> None:
    with subject.made() as executor:
        for items in ([], [3], list(range(12))):
            found = executor.map(work.square, items)
            require(found == [i * i for i in items], f"the squares of {items} came back as {found}")


@clause(
    "executor.errors",
    "An exception of an item is raised as its class, or as a WorkError that names the class. The traceback"
    " leads to the line that raised it.",
)
def errors(subject: ExecutorSubject) -> None:
    expected = {"SettingsError": "a setting", "ValueError": "a value", "KeyError": "a key", "TwoPartError": "code 7"}
    with subject.made() as executor:
        for kind, words in expected.items():
            try:
                executor.map(work.fail, [kind])
            except Exception as error:
                named = type(error).__name__ == kind
                text = "".join(traceback.format_exception(error))
                foreign = kind == "TwoPartError" and isinstance(error, WorkError) and kind in message_of(error)
                require(named or foreign, f"{kind} arrived as {type(error).__name__}: {message_of(error)}")
                require(words in message_of(error), f"the message of {kind} arrived as {message_of(error)!r}")
                require("somewhere_deep" in text, f"the trace of {kind} does not lead to where it was raised:\n{text}")
            else:
                require(False, f"an item raised {kind}, and nothing was raised here")


@clause("executor.first-failure", "After the first exception `map` starts no further items.")
def first_failure(subject: ExecutorSubject) -> None:
    with subject.made() as executor, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        items = [work.Begun(Path(folder), i) for i in range(100)]
        require(work.error_of(partial(executor.map, work.begin_then_fail, items)) is not None, "nothing was raised")
        begun = len(os.listdir(folder))
        require(begun <= MOST_BEGUN, f"{begun} of {len(items)} items were begun although the first one failed")
        time.sleep(0.3)
        later = len(os.listdir(folder))
        require(later <= MOST_BEGUN, f"{later - begun} items were begun after `map` had raised")


@clause("executor.again", "After an exception the executor can do further work.")
def again(subject: ExecutorSubject) -> None:
    with subject.made() as executor:
        for _ in range(2):
            require(
                work.error_of(partial(executor.map, work.fail, ["SettingsError"])) is not None, "nothing was raised"
            )
            try:
                found = executor.map(work.square, [1, 2])
            except Exception as error:
                raise ContractViolation(f"work after a failure raised {type(error).__name__}: {error}") from error
            require(found == [1, 4], f"after a failure the squares of 1 and 2 came back as {found}")


@clause("executor.dead-worker", "If a worker process dies, its items run again, and all results arrive.")
def dead_worker(subject: ExecutorSubject) -> None:
    with subject.made() as executor, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        require_other_process(executor)
        items = [work.Begun(Path(folder), i) for i in range(6)]
        try:
            found = executor.map(work.die_once, items)
        except RlsdkError as error:
            raise ContractViolation(f"a worker died once, and that was the end: {error}") from error
        require(len(found) == len(items) and found[1] == 2, f"the items ran {found} times")


@clause(
    "executor.deadly-item",
    "An item that kills its worker process every time raises WorkError after at most ten attempts.",
)
def deadly_item(subject: ExecutorSubject) -> None:
    with subject.made() as executor, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        require_other_process(executor)
        items = [work.Begun(Path(folder), i) for i in range(3)]
        error = work.error_of(partial(executor.map, work.die_always, items))
        require(isinstance(error, WorkError), f"an item that ends its worker raised {error!r}")
        runs = (Path(folder) / "runs-1").stat().st_size
        require(2 <= runs <= MOST_RUNS, f"the item that ends its worker was tried {runs} times")
        require(executor.map(work.square, [2]) == [4], "afterwards the executor does no more work")


@clause(
    "executor.unpicklable",
    "Functions, items and results that cannot be pickled raise WorkError, unless the executor does not send"
    " them to another process.",
)
def unpicklable(subject: ExecutorSubject) -> None:
    lock = threading.Lock()
    with subject.made() as executor:
        attempts: dict[str, Callable[[], object]] = {
            "work": lambda: executor.map(lambda item: lock.locked(), [1, 2]),
            "an item": lambda: executor.map(work.process_of, [lock, lock]),
            "a result": lambda: executor.map(work.give_a_lock, [1, 2]),
        }
        for what, attempted in attempts.items():
            try:
                attempted()
            except WorkError:
                pass
            except Exception as error:
                kind = type(error).__name__
                raise ContractViolation(f"{what} that cannot be pickled raised {kind}: {error}") from error
        require(executor.map(work.square, [2]) == [4], "afterwards the executor does no more work")


@clause(
    "executor.large-items",
    "Arrays of 8 MB in items and results arrive unchanged bit for bit, also arrays in shared memory.",
)
def large_items(subject: ExecutorSubject) -> None:
    _with_arrays(subject, LARGE)


@clause("executor.very-large-items", "Arrays of 300 MB in items and results arrive unchanged bit for bit.")
def very_large_items(subject: ExecutorSubject) -> None:
    _with_arrays(subject, VERY_LARGE)


def _with_arrays(subject: ExecutorSubject, size: int) -> None:
    with subject.made() as executor:
        items = work.arrays(2, size)
        for item, found in zip(items, executor.map(work.scaled, items), strict=True):
            wanted = work.scaled(item)
            same = found.dtype == wanted.dtype and np.array_equal(found, wanted)
            require(same, f"an array of {wanted.nbytes} bytes came back different")


@clause("executor.nested", "A function that an executor runs may call `map` of an executor of the same name.")
def nested(subject: ExecutorSubject) -> None:
    with subject.made() as executor:
        try:
            found = executor.map(partial(work.nested, subject.name), [1, 2, 3])
        except Exception as error:
            raise ContractViolation(f"work that maps raised {type(error).__name__}: {error}") from error
        require(found == [[1, 4], [4, 9], [9, 16]], f"work that maps returned {found}")


@clause("executor.submit", "`submit` returns a future with the result or the exception of its item.")
def submit(subject: ExecutorSubject) -> None:
    with subject.made() as executor:
        futures = [executor.submit(work.square, i) for i in range(3 * subject.workers)]
        wrong = executor.submit(work.fail, "SettingsError")
        found = [future.result(timeout=120) for future in futures]
        require(found == [i * i for i in range(len(futures))], f"futures returned {found}")
        error = wrong.exception(timeout=120)
        require(isinstance(error, SettingsError), f"the future of an item that raised SettingsError has {error!r}")


@clause("executor.cancel", "The item of a cancelled future never starts. All other items run.")
def cancel(subject: ExecutorSubject) -> None:
    with subject.made() as executor, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        items = [work.Begun(Path(folder), i) for i in range(4 * subject.workers + 2)]
        futures = [executor.submit(work.begin, item) for item in items]
        cancelled = [
            number for number, future in enumerate(futures) if number >= 4 * subject.workers and future.cancel()
        ]
        found = [future.result(timeout=120) for number, future in enumerate(futures) if number not in cancelled]
        require(found == [i for i in range(len(items)) if i not in cancelled], f"futures returned {found}")
        time.sleep(0.2)
        begun = [number for number in cancelled if (Path(folder) / str(number)).exists()]
        require(not begun, f"items {begun} were begun although their futures had been cancelled")


@clause("executor.seeds", "A run of several seeds gives the same results and weights as in this process, bit for bit.")
def seeds(subject: ExecutorSubject) -> None:
    with subject.made() as executor:
        seeds_equal(executor)


@clause(
    "executor.candidates", "Candidates of a population method play the same episodes as in this process, bit for bit."
)
def candidates(subject: ExecutorSubject) -> None:
    candidates_equal(subject.name, subject.workers)


@clause("executor.evaluation", "Parts of an evaluation give the same episodes as in this process, bit for bit.")
def evaluation(subject: ExecutorSubject) -> None:
    evaluation_equal(subject.name, subject.workers)


@clause(
    "executor.collectors",
    "If workers can hold state, training with collectors gives the same weights as in this process.",
)
def collectors(subject: ExecutorSubject) -> None:
    with subject.made() as executor:
        if ability(executor, HasStatefulWorkers, "stateful_workers") is None:
            raise NotApplicable("its workers keep no state")
    collectors_equal(subject.name, subject.workers)


def require_other_process(executor: Executor) -> None:
    """Raise NotApplicable if the executor runs its work in this process: the check would end this process."""
    if os.getpid() in executor.map(work.process_of, [0, 1]):
        raise NotApplicable("its work is done in this process")


SLOW = ("executor.very-large-items",)
