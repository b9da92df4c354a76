"""A pytest plugin: `pytest --rlsdk-check tqc` runs the clauses of the contracts as tests, without a test file.

pytest loads this module in every environment in which rlsdk is installed. So it imports rlsdk only when its options are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rlsdk_testing.isolation import Isolated
    from rlsdk_testing.kit import Clause
    from rlsdk_testing.running import InProcess


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--rlsdk-check ID` and `--rlsdk-set NAME=VALUE`, which may be repeated, and `--rlsdk-thorough`."""
    group = parser.getgroup("rlsdk", "contracts of reinforcement-learning plugins")
    group.addoption("--rlsdk-check", metavar="ID", action="append", default=[], help="check the algorithm ID")
    group.addoption("--rlsdk-thorough", action="store_true", help="try twenty times as many examples")
    group.addoption(
        "--rlsdk-set", metavar="NAME=VALUE", action="append", default=[], help="a setting for the agents of the check"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect no test files if `--rlsdk-check` is given and no file is named on the command line."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    return True if config.getoption("--rlsdk-check") and not named else None


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each clause and each algorithm of `--rlsdk-check`."""
    from rlsdk.errors import RlsdkError

    try:
        for algorithm in config.getoption("--rlsdk-check"):
            items += Contract.from_parent(session, name=algorithm).collect()
    except RlsdkError as error:
        raise pytest.UsageError(str(error)) from None


class Contract(pytest.Collector):
    """Collects the clauses of the contracts as tests of one algorithm."""

    checker: Isolated | InProcess

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one test for each clause."""
        from rlsdk.settings import parse_assignments
        from rlsdk_testing.kit import clauses
        from rlsdk_testing.request import CheckRequest
        from rlsdk_testing.running import checker

        settings = parse_assignments(self.config.getoption("--rlsdk-set"))
        thorough = bool(self.config.getoption("--rlsdk-thorough"))
        self.checker = checker(CheckRequest(algorithm=self.name, settings=settings, thorough=thorough))
        self.config.add_cleanup(self.checker.close)
        for clause in clauses():
            yield ClauseTest.from_parent(self, name=clause.id, clause=clause)


class ClauseTest(pytest.Item):
    """The test of one clause for one algorithm."""

    def __init__(self, *, clause: Clause, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.clause = clause

    def runtest(self) -> None:
        """Check the clause. If it does not apply to the plugin, the test is skipped."""
        assert isinstance(self.parent, Contract)
        outcome = self.parent.checker.check(self.clause)
        if outcome.status == "not applicable" or (outcome.status == "not run" and outcome.crash):
            pytest.skip(outcome.detail)
        if outcome.status != "passed":
            raise AssertionError(f"{outcome.detail}\nto mend: {outcome.remedy}" if outcome.remedy else outcome.detail)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return the clause and the counter-example, without a traceback through the kit."""
        return f"{self.clause.id}: {self.clause.statement}\n{excinfo.value}"

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the location of the test for reports."""
        assert self.parent is not None
        return self.path, None, f"{self.parent.name}: {self.clause.id}"
