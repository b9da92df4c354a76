"""The contract kit: it checks what a plugin promises by implementing the interfaces.

rlsdk check tqc                                  on the command line
pytest --rlsdk-check tqc                         with pytest
rlsdk_testing.run_checks("tqc")                  from Python
@pytest.mark.parametrize("clause", rlsdk_testing.clauses(), ids=str)     in a plugin's own tests:
def test_contract(clause): rlsdk_testing.verify("tqc", clause)

`executor_clauses` and `verify_executor` do the same for executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk_testing.executors import ExecutorClause as ExecutorClause
    from rlsdk_testing.executors import executor_clauses as executor_clauses
    from rlsdk_testing.executors import verify_executor as verify_executor
    from rlsdk_testing.kit import CheckResult as CheckResult
    from rlsdk_testing.kit import Clause as Clause
    from rlsdk_testing.kit import clauses as clauses
    from rlsdk_testing.kit import verify as verify
    from rlsdk_testing.not_applicable import NotApplicable as NotApplicable
    from rlsdk_testing.running import run_checks as run_checks
    from rlsdk_testing.subject import Subject as Subject

__version__ = "0.1.0"
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
        **dict.fromkeys(("Clause", "CheckResult", "clauses", "verify"), "rlsdk_testing.kit"),
        **dict.fromkeys(("ExecutorClause", "executor_clauses", "verify_executor"), "rlsdk_testing.executors"),
        "NotApplicable": "rlsdk_testing.not_applicable",
        "run_checks": "rlsdk_testing.running",
        "Subject": "rlsdk_testing.subject",
    },
)
