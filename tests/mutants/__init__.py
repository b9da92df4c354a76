"""Real bugs, planted on purpose, by the kind of thing they are in."""

from tests.mutants import agents, learning, memories, packages, policies
from tests.mutants.catalogue import MUTANTS, Patch

__all__ = ["MUTANTS", "Patch", "agents", "learning", "memories", "packages", "policies"]
