"""The clauses of the contracts, and functions that check one clause of a plugin."""

from __future__ import annotations

import contextlib
import inspect
import re
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules, resolve_name
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import attrs

from rlsdk.errors import ContractViolation, RlsdkError, SettingsError, message_of, suggest
from rlsdk_testing.not_applicable import NotApplicable

if TYPE_CHECKING:
    from rlsdk_testing.subject import Package, Subject


@attrs.frozen
class Clause:
    """One testable rule for plugins.

    `statement` is the rule as a sentence. `check` raises an error if a plugin breaks the rule; it returns a text that states
    what it could not check, or None.
    """

    id: str
    statement: str
    check: Callable[[Subject], str | None]
    remedy: str = ""
    """What the author of a plugin that breaks the rule has to change. It names the functions, such as `update()`, or the files
    where to look first; a failure shows their lines in the package."""

    def __str__(self) -> str:
        return self.id


@attrs.frozen
class CheckResult:
    """The result of checking one clause."""

    id: str
    statement: str
    status: str
    """One of: passed, failed, not applicable, not run."""
    detail: str = ""
    """Failed: the counter-example. Not applicable or not run: the reason. Passed: what could not be checked, mostly nothing."""
    remedy: str = ""
    """Failed: what the author of the plugin has to change."""
    seconds: float = 0.0
    """The duration of the check, in seconds."""
    crash: str = ""
    """The type of an error that the plugin's code raised, and the line that raised it. Empty for all other failures."""

    def as_dict(self) -> dict[str, object]:
        """Return the fields as name -> value, for JSON."""
        return attrs.asdict(self)


_clauses: dict[str, Clause] = {}
RANKS = {"plugin": 0, "settings": 2, "learns": 3}
"""Group of clauses -> its rank in the order of the checks. All other groups have rank 1. The groups that train for long come
last, so that a check with little time has run the others."""


QUICK = (
    *("formula.", "population.", "resume.equals-uninterrupted", "seeds.", "agent.seed-reproduces", "rollout.", "dose."),
    *("training.", "buffer.", "batch.", "algorithm.", "policy.", "count."),
)
"""Beginnings of the ids of the clauses of a quick check. Those that found most planted bugs for their time come first."""
SLOW = frozenset(
    {
        *("batch.duplicates", "batch.normalized", "count.whole-numbers", "dose.schedules", "dose.weights"),
        *("policy.action-in-space", "policy.in-place-is-act", "policy.rows-independent", "policy.samples-vary"),
        *("rollout.last-observation-read", "training.gradients-fresh", "training.optimizers-hold-networks"),
        "training.optimizers-remember",
    }
)
"""Clauses of these groups that a quick check leaves out: for their time they find the fewest planted bugs."""


def clause(
    identity: str, statement: str, remedy: str = ""
) -> Callable[[Callable[[Subject], str | None]], Callable[[Subject], str | None]]:
    """Return a decorator that registers a check function as the clause `identity`; see `Clause` for the other arguments."""

    def register(check: Callable[[Subject], str | None]) -> Callable[[Subject], str | None]:
        if identity in _clauses:
            raise ValueError(f"clause {identity!r} exists already")
        _clauses[identity] = Clause(identity, statement, check, remedy)
        return check

    return register


def clauses() -> tuple[Clause, ...]:
    """Return all clauses: those of every module `*_clauses` in this package. `plugin.*` is first, slow groups are last."""
    names = [module.name for module in iter_modules([str(Path(__file__).parent)]) if module.name.endswith("_clauses")]
    for name in names:
        import_module(f"rlsdk_testing.{name}")
    return tuple(sorted(_clauses.values(), key=lambda each: _place(each.id.split(".")[0])))


def quick_clauses() -> tuple[Clause, ...]:
    """Return the clauses of a quick check, in its order: see `QUICK` and `SLOW`."""
    return tuple(each for start in QUICK for each in clauses() if each.id.startswith(start) and each.id not in SLOW)


def _place(group: str) -> tuple[int, str]:
    return RANKS.get(group, 1), group


def require(condition: bool, message: str) -> None:
    """Raise ContractViolation with `message` unless `condition` holds."""
    if not condition:
        raise ContractViolation(message)


def verify(algorithm: str, wanted: Clause | str) -> None:
    """Check one clause in this process. Nothing is raised if the clause holds or does not apply.

    Raises:
        ContractViolation: the plugin breaks the clause; the message contains the counter-example.
    """
    chosen = wanted if isinstance(wanted, Clause) else named_clause(wanted)
    outcome = outcome_of(chosen, algorithm)
    if outcome.status == "failed":
        mend = f"\nto mend: {outcome.remedy}" if outcome.remedy else ""
        raise ContractViolation(f"{algorithm} breaks {chosen.id} ({chosen.statement}): {outcome.detail}{mend}")


def named_clause(name: str) -> Clause:
    """Return the clause with the id `name`.

    Raises:
        SettingsError: there is no such clause.
    """
    table = {c.id: c for c in clauses()}
    if name not in table:
        raise SettingsError(f"there is no clause {name!r}; {suggest(name, table)}")
    return table[name]


def outcome_of(chosen: Clause, algorithm: str, settings: Mapping[str, object] | None = None) -> CheckResult:
    """Check one clause in this process with one thread, and return the result.

    If the plugin raises an exception, the result has the status "failed" and contains the exception as text.
    """
    from rlsdk.runtime import limited_threads
    from rlsdk_testing.subject import Subject, package_of_kernels

    began = time.perf_counter()
    exceptions: Mapping[str, str] = {}
    package = ""
    subject: Any = None
    try:
        with limited_threads(1):
            kernels = package_of_kernels(algorithm)
            if kernels is not None and chosen.id != kernels.CLAUSE:
                raise NotApplicable("the package has kernels and no algorithm")
            subject = kernels or Subject(algorithm, settings)
            exceptions, package = subject.exceptions, subject.package
            unseen = chosen.check(subject)
    except NotApplicable as reason:
        found = result(chosen, "not applicable", str(reason))
    # an algorithm may also refuse what a clause tries, such as a batch of one row
    except RlsdkError as error:
        declared = exceptions.get(chosen.id)
        excepted = None if declared is None else f"the plugin declares it: {declared} ({message_of(error)})"
        found = broken(chosen, error) if excepted is None else result(chosen, "not applicable", excepted[:LONGEST])
    except (Exception, SystemExit) as error:  # a plugin may raise anything; the table must still be printed
        found = broken(chosen, error, package)
    else:
        found = result(chosen, "passed", unseen or "")
    if found.status == "failed" and not found.crash and subject is not None:
        lines = lines_to_see(found.remedy, subject)
        found = attrs.evolve(
            found, remedy=f"{found.remedy} Look first at {'; '.join(lines)}." if lines else found.remedy
        )
    return attrs.evolve(found, seconds=round(time.perf_counter() - began, 3))


def result(chosen: Clause, status: str, detail: str = "", remedy: str = "") -> CheckResult:
    """Return the result of checking the clause `chosen`."""
    return CheckResult(chosen.id, chosen.statement, status, detail, remedy)


def broken(chosen: Clause, error: BaseException, package: str = "") -> CheckResult:
    """Return the result of a clause whose check raised `error`. `package`: the plugin's, whose line that raised is named."""
    notes = "\n".join(map(str, getattr(error, "__notes__", [])))
    text = message_of(error)
    if isinstance(error, SystemExit):
        detail = f"the plugin called sys.exit({text})"
    else:
        kind = "" if isinstance(error, ContractViolation) else type(error).__name__
        detail = ": ".join(part for part in (kind, text) if part)
    # errors of the SDK name what to change; their line in the plugin, such as a call in build(), may be right in other clauses
    place = "" if isinstance(error, RlsdkError) else _line_of(error, package)
    found = result(chosen, "failed", f"{detail}\n{notes}".strip()[:LONGEST], chosen.remedy)
    if not place:
        return found
    remedy = f"mend the error that {place} raises; clauses that meet it too are not judged before"
    return attrs.evolve(
        found, detail=f"{found.detail} ({place})", remedy=remedy, crash=f"{type(error).__name__} in {place}"
    )


def _line_of(error: BaseException, package: str) -> str:
    """Return the innermost line of the package in the tracebacks of an error and its causes; empty if there is none."""
    cause: BaseException | None = error
    while cause is not None and package:
        for frame, line in reversed(list(walk_tb(cause.__traceback__))):
            if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
                *_, folder, name = Path(frame.f_code.co_filename).parts
                return f"{folder}/{name}, line {line}"
        cause = cause.__cause__ or cause.__context__
    return ""


def lines_to_see(remedy: str, subject: Subject | Package) -> list[str]:
    """Return the lines of the plugin that a remedy names, such as "update() in acme/learner.py, line 12", at most `MOST_LINES`.

    They are methods of the agent's parts, in the order of the remedy. A part that another package has written has no lines in
    the plugin: then it is the line of `build`, which chooses the parts.
    """
    from rlsdk_testing.subject import Package

    names = dict.fromkeys(NAMES.findall(remedy))
    lines = [f"{subject.package}/rlsdk.toml"] if "rlsdk.toml" in names else []
    if isinstance(subject, Package):  # it has kernels and no parts
        return lines
    build, kinds = subject.spec.build, list[type]()
    with contextlib.suppress(Exception):  # a plugin that makes no agent fails a clause about that
        # the function that a manifest names is imported when it is called first, so that the spec has another object for it
        build = resolve_name(subject.manifest.build) if subject.manifest.build else build
        parts = subject.agent().parts
        kinds = [type(getattr(parts, name)) for name in ("algorithm", "policy", "plan", "buffer", "behavior")]
    places = {"build": build, "config class": subject.spec.config_type}
    for name in names:
        for kind in [None] if name in places else kinds:
            member = getattr(kind, name, None) if kind else places[name]
            # a class of the plugin may take the method from rlsdk
            lines += _line_in(subject.package, name, member) or (
                _line_in(subject.package, kind.__name__, kind) if kind and member else []
            )
    return list(dict.fromkeys(lines or _line_in("", "build", build)))[:MOST_LINES]


def _line_in(package: str, name: str, member: object) -> list[str]:
    """Return the line of a function or class; none if it has no source, or is in another package than `package`, "" for any."""
    code = inspect.unwrap(member) if callable(member) else None
    if code is None or (package and str(getattr(code, "__module__", "")).partition(".")[0] != package):
        return []
    with contextlib.suppress(Exception):  # the source may be that of a page or a notebook, or written in C
        path, line = Path(inspect.getsourcefile(code) or ""), inspect.getsourcelines(code)[1]
        called = name if inspect.isclass(code) else f"{name}()"
        return [f"{called} in {path.parent.name}/{path.name}, line {line}"]
    return []


class Crashes:
    """The errors that the plugin's code raised in earlier clauses, so that each is reported once."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        """Error and line -> the clause that met it first."""

    def judged(self, outcome: CheckResult) -> CheckResult:
        """Return the result, or "not run" if an earlier clause failed by the same error of the same line."""
        if not outcome.crash or (first := self._first.setdefault(outcome.crash, outcome.id)) == outcome.id:
            return outcome
        reason = f"not judged: the {outcome.crash} that {first} met ends it as well"
        return attrs.evolve(outcome, status="not run", detail=reason, remedy="")


MOST_LINES = 3
"""Lines that a failure names at most."""
NAMES = re.compile(r"\b\w+(?=\()|(?<=`)\w+(?=`)|\bconfig class\b|\brlsdk\.toml\b")
"""What a remedy names: functions, as update() or in backticks, the config class, and the manifest."""
LONGEST = 4000
"""The largest number of characters of a detail."""
