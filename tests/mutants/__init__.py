"""Bugs planted on purpose, one module for each kind of code, with the clauses of the contract kit that find them."""

from tests.mutants import (
    acting,
    agents,
    batches,
    doses,
    learning,
    memories,
    packages,
    policies,
    printing,
    rounds,
    settings,
    small,
    spaces,
    toys,
)
from tests.mutants.catalog import ALONE, MUTANTS, Patch

__all__ = [
    "ALONE",
    "MUTANTS",
    "Patch",
    "acting",
    "agents",
    "batches",
    "doses",
    "learning",
    "memories",
    "packages",
    "policies",
    "printing",
    "rounds",
    "settings",
    "small",
    "spaces",
    "toys",
]
