"""Checking the clauses of one algorithm: where, and for how long."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from types import TracebackType

import attrs

from rlsdk.errors import SettingsError
from rlsdk.registry import find
from rlsdk.registry.discovery import registered
from rlsdk.registry.trial import require_loads
from rlsdk.testing.isolation import Isolated
from rlsdk.testing.kit import CheckResult, Clause, clauses, outcome_of, result
from rlsdk.testing.request import Request, require_settings
from rlsdk.testing.strategies import thoroughly


class InProcess:
    """Checks clauses in this process: for debuggers, and for algorithms that are registered in it."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def check(self, chosen: Clause, seconds: float = math.inf) -> CheckResult:  # it cannot be stopped
        """The outcome of one clause."""
        with thoroughly(self._request.thorough):
            return outcome_of(chosen, self._request.algorithm, self._request.settings)

    def close(self) -> None:
        """Nothing is held."""


def checker(request: Request, *, isolate: bool = True) -> Isolated | InProcess:
    """What checks the clauses: a process, for installed algorithms; this process with `isolate=False` and for registered ones.

    Raises:
        PluginError: there is no such algorithm, or it does not load. SettingsError: it refuses the settings.
    """
    plugin = find(request.algorithm)
    if isolate and registered(plugin) is None and sys.executable:
        require_loads(plugin)
        return Isolated(attrs.evolve(request, algorithm=plugin.qualified_id), plugin.module.partition(".")[0])
    require_settings(request.algorithm, request.settings)
    return InProcess(request)


def outcomes(request: Request, *, seconds: float | None = None, isolate: bool = True) -> Iterator[CheckResult]:
    """The outcome of every clause, each as soon as it is known; clauses that do not fit into `seconds` are not run.

    Raises:
        PluginError: as `checker`. SettingsError: as `checker`, or `seconds` is not a positive number.
    """
    if seconds is not None and not 0 < seconds < math.inf:
        raise SettingsError(f"seconds must be a number above 0, not {seconds!r}; leave it out for no limit")
    end = math.inf if seconds is None else time.monotonic() + seconds
    with checker(request, isolate=isolate) as chosen:
        for each in clauses():
            left = end - time.monotonic()
            yield chosen.check(each, left) if left > 0 else result(each, "not run", f"the {seconds:g} s were over")


def run_checks(
    algorithm: str,
    *,
    thorough: bool = False,
    settings: Mapping[str, object] | None = None,
    seconds: float | None = None,
    isolate: bool = True,
) -> list[CheckResult]:
    """The outcome of every clause for one installed or registered algorithm.

    An installed algorithm is checked in a process of its own: where it hangs, ends that process or takes all memory, the clause
    fails, and the other clauses are checked in a new process.

    Args:
        thorough: twenty times as many examples, every observation with every action space.
        settings: for every agent that the clauses make, before those of `AlgorithmSpec.testing_settings`. Of tables such as
            `policy_kwargs` the given entries are replaced.
        seconds: for the whole check; the outcome of clauses that do not fit is "not run".
        isolate: False checks in this process, as for algorithms that are registered in it.

    Raises:
        PluginError: there is no such algorithm, or it does not load. SettingsError: the algorithm refuses `settings`, or
            `seconds` is not above 0.
    """
    request = Request(algorithm=algorithm, settings=settings or {}, thorough=thorough)
    return list(outcomes(request, seconds=seconds, isolate=isolate))


def summary(results: list[CheckResult]) -> str:
    """One line: how many clauses hold, are broken (with their ids), do not apply and were not run."""
    chosen = {status: [each for each in results if each.status == status] for status in ORDER}
    parts = [f"{len(chosen['passed'])} {'holds' if len(chosen['passed']) == 1 else 'hold'}"]
    if failed := chosen["failed"]:
        parts.append(
            f"{len(failed)} {'is' if len(failed) == 1 else 'are'} broken ({', '.join(each.id for each in failed)})"
        )
    if absent := chosen["not applicable"]:
        parts.append(f"{len(absent)} {'does' if len(absent) == 1 else 'do'} not apply")
    if skipped := chosen["not run"]:
        parts.append(f"{len(skipped)} {'was' if len(skipped) == 1 else 'were'} not run")
    return ", ".join(parts)


ORDER = ("passed", "failed", "not applicable", "not run")
"""Every status of a result."""
