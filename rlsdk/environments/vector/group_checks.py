"""Checks whether environments can be stepped together."""

from __future__ import annotations

from collections.abc import Sequence

from rlsdk.environments.adapters.attributes import Environment
from rlsdk.environments.adapters.space_conversion import spaces_of
from rlsdk.errors import EnvironmentFault
from rlsdk.spaces import Space


def require_separate(environments: Sequence[Environment], name: str) -> None:
    """Raises EnvironmentFault when `environments` contains the same environment twice, possibly inside wrappers."""
    inner = [id(environment.unwrapped) for environment in environments]
    if len(set(inner)) < len(inner):
        first = next(i for i, own in enumerate(inner) if own in inner[:i])
        raise EnvironmentFault(
            f"environment {name!r}: numbers {inner.index(inner[first])} and {first} are one and the same instance, so both"
            " would step it; give a function that makes a new environment at each call, such as lambda: gymnasium.make(id)"
        )


def require_alike(environments: Sequence[Environment], pair: tuple[Space, Space], name: str) -> None:
    """Raises EnvironmentFault when an environment has other spaces than `pair`."""
    for i, environment in enumerate(environments):
        own = spaces_of(environment)
        for kind, mine, theirs in zip(("observation", "action"), own, pair, strict=True):
            if mine != theirs:
                raise EnvironmentFault(
                    f"environment {name!r}: number {i} has the {kind} space {mine}, number 0 has {theirs};"
                    " environments that are stepped together must have the same spaces"
                )
