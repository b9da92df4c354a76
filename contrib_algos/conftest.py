"""The longest clauses run in `make test-slow` for the packages here; for those in plugins/ they run in `make test`."""

from __future__ import annotations

import pytest

LONGEST = {
    "learns.bandit",
    "learns.entropy",
    "learns.known-values",
    "learns.scaled-rewards",
    "settings.as-declared",
    "settings.have-effect",
    "settings.live-take-over",
    "settings.schedules-followed",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark their tests as slow."""
    for item in items:
        clause = item.name.removeprefix("test_contract[").removesuffix("]")
        if "contrib_algos" in item.path.parts and clause in LONGEST:
            item.add_marker(pytest.mark.slow)
