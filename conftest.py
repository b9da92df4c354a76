"""The longest clauses of the contract run in `make test` for the packages `ALWAYS`; for the others in `make test-slow`."""

from __future__ import annotations

import pytest

ALWAYS = {"rlsdk-tqc", "rlsdk-recurrent-ppo"}
"""One with a replay buffer and Box actions, one with rollouts, a memory and all actions."""
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
        _, is_contract, clause = item.name.removesuffix("]").partition("test_contract[")
        if is_contract and clause in LONGEST and not ALWAYS & set(item.path.parts):
            item.add_marker(pytest.mark.slow)
