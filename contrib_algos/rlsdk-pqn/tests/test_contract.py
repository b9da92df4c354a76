"""The plugin passes every clause of the SDK's contracts."""

from __future__ import annotations

import pytest

from rlsdk_testing import Clause, clauses, verify


@pytest.mark.parametrize("clause", clauses(), ids=str)
def test_contract(clause: Clause) -> None:
    verify("pqn", clause)
