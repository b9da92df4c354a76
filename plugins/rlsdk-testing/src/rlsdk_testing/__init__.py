"""The contract kit: it checks what a plugin promises by implementing the interfaces. It needs the extra `testing`.

rlsdk check tqc                                  on the command line
pytest --rlsdk-check tqc                         with pytest
rlsdk.testing.run_checks("tqc")                  from Python
@pytest.mark.parametrize("clause", rlsdk.testing.clauses(), ids=str)     in a plugin's own tests:
def test_contract(clause): rlsdk.testing.verify("tqc", clause)

`executor_clauses` and `verify_executor` do the same for executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.testing.executors import ExecutorClause as ExecutorClause
    from rlsdk.testing.executors import executor_clauses as executor_clauses
    from rlsdk.testing.executors import verify_executor as verify_executor
    from rlsdk.testing.kit import CheckResult as CheckResult
    from rlsdk.testing.kit import Clause as Clause
    from rlsdk.testing.kit import clauses as clauses
    from rlsdk.testing.kit import verify as verify
    from rlsdk.testing.not_applicable import NotApplicable as NotApplicable
    from rlsdk.testing.running import run_checks as run_checks
    from rlsdk.testing.subject import Subject as Subject

__all__ = [
    "Clause",
    "ExecutorClause",
    "NotApplicable",
    "CheckResult",
    "Subject",
    "clauses",
    "executor_clauses",
    "run_checks",
    "verify",
    "verify_executor",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        **dict.fromkeys(("Clause", "CheckResult", "clauses", "verify"), "rlsdk.testing.kit"),
        **dict.fromkeys(("ExecutorClause", "executor_clauses", "verify_executor"), "rlsdk.testing.executors"),
        "NotApplicable": "rlsdk.testing.not_applicable",
        "run_checks": "rlsdk.testing.running",
        "Subject": "rlsdk.testing.subject",
    },
)
