"""Real bugs, planted on purpose, by the kind of thing they are in."""

from tests.mutants import (
    acting,
    agents,
    batches,
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
from tests.mutants.catalogue import ALONE, MUTANTS, Patch

__all__ = [
    "ALONE",
    "MUTANTS",
    "Patch",
    "acting",
    "agents",
    "batches",
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
