"""Checks clauses in a separate process. If the plugin hangs, crashes or uses too much memory, only that clause fails."""

from __future__ import annotations

import json
from types import TracebackType

import attrs

from rlsdk.errors import PluginError, SettingsError, one_line
from rlsdk_testing.kit import CheckResult, Clause, Crashes, result
from rlsdk_testing.request import CheckRequest
from rlsdk_testing.worker_process import Fault, WorkerProcess

SECONDS = 60.0
"""The time limit of one clause, ten times as long with `--thorough`: seconds of processor time, because a machine under load
must not fail a plugin. Only a process that waits is measured by the clock; see `rlsdk_testing.worker_process.Limit`."""
SECONDS_AFTER_HANGING = 20.0
"""The time limit of one clause after another clause did not end, because a plugin that hangs often hangs in many clauses. The
limit is at least five times the time of the slowest clause that ended."""
START_SECONDS = 120.0
"""The time limit of importing torch, rlsdk and the plugin."""
GRACE = 2.0
"""Seconds within which processes must end after the clause that started them."""
LEAVE = "leave what belongs to the whole process to the program, or put it back before your code returns"
MOST_LOST = 8
"""If this many clauses in a row end the process or do not end, the clauses after them are not run."""


class Isolated:
    """Checks clauses of one algorithm in a separate process, which is replaced if a clause ended it."""

    def __init__(self, request: CheckRequest, package: str) -> None:
        """`package`: the package of the plugin, whose files are named in messages."""
        self._request, self._package = request, package
        self._process: WorkerProcess | None = None
        self._lost, self._hung, self._slowest = 0, False, 0.0
        self._crashes = Crashes()

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def check(self, chosen: Clause, seconds: float = float("inf")) -> CheckResult:
        """Check one clause and return the result; "not run" if it takes more than `seconds`.

        Raises:
            SettingsError: the algorithm refuses the settings. PluginError: the process does not start.
        """
        if self._lost >= MOST_LOST:
            why = f"each of the {MOST_LOST} clauses before it ended the process or did not end; mend those first"
            return result(chosen, "not run", why)
        process = self._process or self._start()
        limit = SECONDS * (10 if self._request.thorough else 1)
        if self._hung:
            limit = min(limit, max(SECONDS_AFTER_HANGING, 5 * self._slowest))
        answer = process.ask(json.dumps(chosen.id).encode() + b"\n", limit, seconds)
        if isinstance(answer, Fault):
            self.close()
            if answer.late:
                return result(chosen, "not run", "the time of the whole check was over before it ended")
            return self._lost_in(chosen, answer)
        outcome = CheckResult(**answer["outcome"])
        self._lost, self._slowest = 0, max(self._slowest, outcome.seconds)
        outcome = self._crashes.judged(self._alone(chosen, outcome, answer["strays"]))
        return self._apart(outcome, answer["changed"]) if answer["changed"] else outcome

    def close(self) -> None:
        """End the process and all processes that it started."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def _start(self) -> WorkerProcess:
        line = self._request.as_line()
        self._process = WorkerProcess(self._package)
        answer = self._process.ask(line, START_SECONDS)
        if isinstance(answer, Fault):
            self.close()
            raise PluginError(f"loading {self._request.algorithm} {answer.text}{answer.place}")
        if "refused" in answer:
            self.close()
            raise SettingsError(answer["refused"])
        return self._process

    def _lost_in(self, chosen: Clause, fault: Fault) -> CheckResult:
        """Return the result of a clause that ended the process or did not end: failed."""
        self._lost, self._hung = self._lost + 1, self._hung or fault.hangs
        return result(chosen, "failed", f"it {fault.text}{fault.place}", self._in_a_debugger(chosen))

    def _alone(self, chosen: Clause, outcome: CheckResult, strays: int) -> CheckResult:
        """Return the result of a clause, changed to failed if the plugin left processes running.

        This includes forked processes that did not end in the plugin's code.
        """
        assert self._process is not None
        left = self._process.left(GRACE)
        if strays or self._process.strays() or any(member.command == self._process.command for member in left):
            detail = "a process that it forked did not end in the plugin's code"
            remedy = "end a process that your code forks with os._exit before it returns, and wait for it"
        elif left:
            names = ", ".join(dict.fromkeys(one_line(member.command, 60) or "?" for member in left))
            detail = f"it left {len(left)} process{'es' if len(left) > 1 else ''} running: {names}"
            remedy = "end the processes that your code starts when the call that needs them returns, or in close()"
        else:
            return outcome
        detail = f"{outcome.detail}\n{detail}" if outcome.status == "failed" else detail
        return attrs.evolve(outcome, status="failed", detail=detail, remedy=remedy)

    def _apart(self, outcome: CheckResult, changed: list[str]) -> CheckResult:
        """Return the result of a clause after which the plugin had changed the process: failed. The next one is a new one."""
        self.close()  # the clauses that follow would be checked with the change, and blamed for it
        detail = f"it changed {', '.join(changed)}"
        detail = f"{outcome.detail}\n{detail}" if outcome.status == "failed" else detail
        remedy = outcome.remedy if outcome.status == "failed" else ""
        return attrs.evolve(outcome, status="failed", detail=detail, remedy=remedy or LEAVE)

    def _in_a_debugger(self, chosen: Clause) -> str:
        call = f"rlsdk_testing.verify({self._request.algorithm!r}, {chosen.id!r})"
        return f"call {call} in a debugger; it checks in your process"
