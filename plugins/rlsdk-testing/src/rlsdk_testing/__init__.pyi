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

__version__: str
