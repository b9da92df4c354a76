"""The contract kit: what a plugin promises by implementing the interfaces, checked. Needs the extra `testing`.

rlsdk check tqc                                  on the command line
pytest --rlsdk-check tqc                         with pytest
rlsdk.testing.run_checks("tqc")                  from Python
@pytest.mark.parametrize("clause", rlsdk.testing.clauses(), ids=str)     in a plugin's own tests:
def test_contract(clause): rlsdk.testing.verify("tqc", clause)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.testing.kit import CheckResult as CheckResult
    from rlsdk.testing.kit import Clause as Clause
    from rlsdk.testing.kit import clauses as clauses
    from rlsdk.testing.kit import verify as verify
    from rlsdk.testing.not_applicable import NotApplicable as NotApplicable
    from rlsdk.testing.running import run_checks as run_checks
    from rlsdk.testing.subject import Subject as Subject

__all__ = ["Clause", "NotApplicable", "CheckResult", "Subject", "clauses", "run_checks", "verify"]

__getattr__, __dir__ = attach(
    __name__,
    {
        **dict.fromkeys(("Clause", "CheckResult", "clauses", "verify"), "rlsdk.testing.kit"),
        "NotApplicable": "rlsdk.testing.not_applicable",
        "run_checks": "rlsdk.testing.running",
        "Subject": "rlsdk.testing.subject",
    },
)
