"""Clauses of the contracts, and running them against a plugin."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import attrs

from rlsdk.errors import ContractViolation, SettingsError, suggest
from rlsdk.testing.not_applicable import NotApplicable

if TYPE_CHECKING:
    from rlsdk.testing.subject import Subject

MODULES = ("plugin", "policy", "distribution", "buffer", "algorithm", "population", "serializer", "agent")


@attrs.frozen
class Clause:
    """One promise: `id`, a sentence, and the function that raises when it is broken."""

    id: str
    statement: str
    check: Callable[[Subject], None]

    def __str__(self) -> str:
        return self.id


@attrs.frozen
class CheckResult:
    """What became of one clause."""

    id: str
    statement: str
    status: str
    """passed, failed, or not applicable"""
    detail: str = ""

    def as_dict(self) -> dict[str, object]:
        """JSON values."""
        return attrs.asdict(self)


_clauses: dict[str, Clause] = {}


def clause(identity: str, statement: str) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Register a check function as the clause `identity`."""

    def register(check: Callable[[Subject], None]) -> Callable[[Subject], None]:
        if identity in _clauses:
            raise ValueError(f"clause {identity!r} exists already")
        _clauses[identity] = Clause(identity, statement, check)
        return check

    return register


def clauses() -> tuple[Clause, ...]:
    """Every clause of every contract."""
    for name in MODULES:
        import_module(f"rlsdk.testing.{name}_clauses")
    return tuple(_clauses.values())


def require(condition: bool, message: str) -> None:
    """Raise ContractViolation with `message` unless `condition` holds."""
    if not condition:
        raise ContractViolation(message)


def verify(algorithm: str, wanted: Clause | str) -> None:
    """Check one clause; returns silently if it holds or does not apply.

    Raises:
        ContractViolation: the clause is broken; the message carries the counter-example.
    """
    chosen = wanted if isinstance(wanted, Clause) else _find(wanted)
    outcome = outcome_of(chosen, algorithm)
    if outcome.status == "failed":
        raise ContractViolation(f"{algorithm} breaks {chosen.id} ({chosen.statement}): {outcome.detail}")


def _find(name: str) -> Clause:
    table = {c.id: c for c in clauses()}
    if name not in table:
        raise SettingsError(f"there is no clause {name!r}; {suggest(name, table)}")
    return table[name]


def run_checks(algorithm: str, *, thorough: bool = False) -> list[CheckResult]:
    """The outcome of every clause for one installed or registered algorithm; `thorough` tries twenty times as many examples.

    Raises:
        PluginError: there is no such algorithm, or it does not load.
    """
    from rlsdk.registry import load
    from rlsdk.testing.strategies import thoroughly

    load(algorithm)
    with thoroughly(thorough):
        return [outcome_of(c, algorithm) for c in clauses()]


def outcome_of(chosen: Clause, algorithm: str) -> CheckResult:
    """Check one clause; an error of the plugin is in the outcome."""
    from rlsdk.testing.subject import Subject

    try:
        chosen.check(Subject(algorithm))
    except NotApplicable as reason:
        return CheckResult(chosen.id, chosen.statement, "not applicable", str(reason))
    except Exception as error:  # a plugin may raise anything; the table must still be printed
        notes = "\n".join(getattr(error, "__notes__", []))
        return CheckResult(chosen.id, chosen.statement, "failed", f"{type(error).__name__}: {error}\n{notes}".strip())
    return CheckResult(chosen.id, chosen.statement, "passed")
