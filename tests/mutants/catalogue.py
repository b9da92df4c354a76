"""Where planted bugs are listed, with the clause that is there for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Patch = pytest.MonkeyPatch
MUTANTS: list[tuple[str, str, Callable[[Patch], None]]] = []


def mutant(clause: str, algorithm: str = "tqc") -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS.append((clause, algorithm, plant))
        return plant

    return register
