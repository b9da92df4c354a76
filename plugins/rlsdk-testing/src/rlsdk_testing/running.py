"""Runs the clauses for one algorithm, in a separate process or in this one, and with an optional time limit."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from types import TracebackType

import attrs

from rlsdk.errors import SettingsError
from rlsdk.registry import find
from rlsdk_testing.isolation import Isolated
from rlsdk_testing.kit import CheckResult, Clause, Crashes, clauses, named_clause, outcome_of, quick_clauses, result
from rlsdk_testing.plugin_trial import require_loads
from rlsdk_testing.request import CheckRequest, require_settings
from rlsdk_testing.strategies import thoroughly
from rlsdk_testing.subject import package_of_kernels


class InProcess:
    """Checks clauses in this process, for debuggers and for algorithms that are registered in this process."""

    def __init__(self, request: CheckRequest) -> None:
        self._request, self._crashes = request, Crashes()

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def check(self, chosen: Clause, seconds: float = math.inf) -> CheckResult:  # no time limit is possible here
        """Check one clause and return the result. `seconds` is ignored."""
        with thoroughly(self._request.thorough):
            return self._crashes.judged(outcome_of(chosen, self._request.algorithm, self._request.settings))

    def close(self) -> None:
        """Do nothing: there is no process to end."""


def checker(request: CheckRequest, *, isolate: bool = True) -> Isolated | InProcess:
    """Return the object that checks the clauses: in a separate process, or in this one.

    This process is used with `isolate=False`, and for algorithms that are registered in it.

    Raises:
        PluginError: there is no such algorithm, or it does not load. SettingsError: it refuses the settings.
    """
    if package_of_kernels(request.algorithm) is not None:
        return InProcess(request)
    plugin = find(request.algorithm)
    if isolate and not plugin.is_registered and sys.executable:
        require_loads(plugin)
        return Isolated(attrs.evolve(request, algorithm=plugin.qualified_id), plugin.module.partition(".")[0])
    require_settings(request.algorithm, request.settings)
    return InProcess(request)


def outcomes(
    request: CheckRequest, *, seconds: float | None = None, isolate: bool = True, fast: bool = False
) -> Iterator[CheckResult]:
    """Check every clause, or those of a quick check if `fast`, and yield each result when it is known.

    After `seconds`, the remaining clauses are not run.

    Raises:
        PluginError: as in `checker`. SettingsError: as in `checker`, or `seconds` is not a positive number.
    """
    if seconds is not None and not 0 < seconds < math.inf:
        raise SettingsError(f"seconds must be a number above 0, not {seconds!r}; leave it out for no limit")
    end = math.inf if seconds is None else time.monotonic() + seconds
    with checker(request, isolate=isolate) as chosen:
        kernels = package_of_kernels(request.algorithm)
        every = quick_clauses() if fast else clauses()
        for each in every if kernels is None else [named_clause(kernels.CLAUSE)]:
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
    """Check every clause for one installed or registered algorithm, and return the results.

    An installed algorithm is checked in a separate process. If it hangs, ends that process or uses too much memory, the clause
    fails, and the other clauses are checked in a new process.

    Args:
        algorithm: the id of the algorithm.
        thorough: try twenty times as many examples, and every observation space with every action space.
        settings: settings for every agent that the clauses make. They override `AlgorithmSpec.testing_settings`. In tables
            such as `policy_kwargs` only the given entries are replaced.
        seconds: the time limit of the whole check; clauses that were not checked in time have the status "not run".
        isolate: False checks in this process. Algorithms that are registered in this process are always checked in it.

    Raises:
        PluginError: there is no such algorithm, or it does not load. SettingsError: the algorithm refuses `settings`, or
            `seconds` is not above 0.
    """
    request = CheckRequest(algorithm=algorithm, settings=settings or {}, thorough=thorough)
    return list(outcomes(request, seconds=seconds, isolate=isolate))


def summary(results: list[CheckResult]) -> str:
    """Return one line of text: how many clauses hold, are broken (with their ids), do not apply and were not run."""
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
"""The possible values of `CheckResult.status`."""
