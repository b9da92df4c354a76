"""Which tests are slow, and the threads of the suite.

The longest clauses of the contract run in `make test` for the packages `ALWAYS`; for the others in `make test-slow`.
"""

from __future__ import annotations

import gc
import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in `learn`; threads of parallel tests would wait for each other

ALWAYS = {"rlsdk-tqc", "rlsdk-ppo"}
"""One with a replay buffer and Box actions, one with rollouts and all actions."""
LONGEST = {
    "learns.bandit",
    "learns.entropy",
    "learns.known-values",
    "learns.normalized",
    "learns.scaled-rewards",
    "learns.sign-of-observation",
    "learns.time-limit",
    "settings.as-declared",
    "settings.have-effect",
    "settings.live-take-over",
    "settings.schedules-followed",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark their tests as slow."""
    for item in items:
        _, _, clause = item.name.removesuffix("]").partition("[")
        if clause in LONGEST and not ALWAYS & set(item.path.parts):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Leave the collected tests and modules out of later garbage collections: half a million objects that stay."""
    gc.collect()
    gc.freeze()
