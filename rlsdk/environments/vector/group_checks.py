"""Checks whether environments can be stepped together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlsdk.environments.adapters.attributes import Environment
from rlsdk.environments.adapters.masks import METHOD, mask_methods
from rlsdk.environments.adapters.space_conversion import spaces_of, told_apart
from rlsdk.errors import EnvironmentFault, SettingsError, shown
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


def masks_of_all(
    environments: Sequence[Environment], name: str, numbers: Sequence[int]
) -> list[Callable[[], object]] | None:
    """The methods `action_masks` of all environments; None if none has one.

    Raises:
        EnvironmentFault: some environments have the method, and others do not.
    """
    if (methods := mask_methods(environments)) is not None:
        return methods
    have = [mask_methods([environment]) is not None for environment in environments]
    if any(have) and not all(have):
        with_one, without = (numbers[have.index(kind)] for kind in (True, False))
        raise EnvironmentFault(
            f"environment {name!r}: number {with_one} has a method {METHOD}, number {without} has none; give one to all"
            " environments that are stepped together"
        )
    return None


def require_alike(environments: Sequence[Environment], pair: tuple[Space, Space], name: str) -> None:
    """Raises EnvironmentFault when an environment has other spaces than `pair`."""
    for i, environment in enumerate(environments):
        own = spaces_of(environment)
        for kind, mine, theirs in zip(("observation", "action"), own, pair, strict=True):
            if mine != theirs:
                own_text, first_text = told_apart(mine, theirs)
                raise EnvironmentFault(
                    f"environment {name!r}: number {i} has the {kind} space {own_text}, number 0 has {first_text};"
                    " environments that are stepped together must have the same spaces"
                )


MOST_COPIES = 2**24
"""The largest number of environments. More would not even have room for their names."""


def require_copies(count: object) -> int:
    """The number of environments `n_envs`, unchanged.

    Raises:
        SettingsError: it is not a positive whole number, or more than `MOST_COPIES`.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SettingsError(f"n_envs = {count!r} must be a positive whole number")
    if count > MOST_COPIES:
        raise SettingsError(f"n_envs = {shown(count, 60)} must be at most {MOST_COPIES:,}; give fewer environments")
    return count
