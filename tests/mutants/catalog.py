"""The lists of planted bugs, with the clause that finds each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Patch = pytest.MonkeyPatch
Mutant = tuple[str, str, Callable[[Patch], None]]
"""(clause, algorithm, function that plants the bug)"""
MUTANTS: list[Mutant] = []
ALONE: dict[str, Mutant] = {}
"""Clause -> a bug that no other clause finds."""


def mutant(
    clause: str, algorithm: str = "tqc", *, alone: bool = False
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Add a bug to the list for a clause. alone: no other clause finds the bug."""

    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS.append((clause, algorithm, plant))
        if alone:
            assert clause not in ALONE, f"{clause} has two"
            ALONE[clause] = MUTANTS[-1]
        return plant

    return register


def changed_act(patch: Patch, kind: type[Any], change: Callable[..., Any]) -> None:
    """Make `act` of a policy class return `change(answer, observation, carry, deterministic, generator)`."""
    act = kind.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        answer = act(self, observation, carry, deterministic=deterministic, generator=generator)
        return change(answer, observation, carry, deterministic, generator)

    patch.setattr(kind, "act", broken)
