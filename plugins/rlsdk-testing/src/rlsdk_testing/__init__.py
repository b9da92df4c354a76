"""The contract kit: it checks what a plugin promises by implementing the interfaces.

rlsdk check tqc                                  on the command line
pytest --rlsdk-check tqc                         with pytest
rlsdk_testing.run_checks("tqc")                  from Python
@pytest.mark.parametrize("clause", rlsdk_testing.clauses(), ids=str)     in a plugin's own tests:
def test_contract(clause): rlsdk_testing.verify("tqc", clause)

`executor_clauses` and `verify_executor` do the same for executors.
"""

from rlsdk.runtime import attach

__version__ = "0.1.0"
__getattr__, __dir__ = attach(__name__, __file__)
