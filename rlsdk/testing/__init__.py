"""The contract kit: what a plugin promises by implementing the interfaces, checked. Needs the extra `testing`.

rlsdk check tqc                                  on the command line
rlsdk.testing.run_checks("tqc")                  from Python
@pytest.mark.parametrize("clause", rlsdk.testing.clauses(), ids=str)     in a plugin's own tests:
def test_contract(clause): rlsdk.testing.verify("tqc", clause)
"""

from rlsdk.testing.kit import Clause, NotApplicable, Outcome, clauses, run_checks, verify
from rlsdk.testing.subject import Subject

__all__ = ["Clause", "NotApplicable", "Outcome", "Subject", "clauses", "run_checks", "verify"]
