"""Errors for unusable arguments of `predict` and `step`. Their messages name the replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlsdk.errors import DivergenceError, ObservationError, UsageError
from rlsdk.records import EnvStep, Observation
from rlsdk.spaces import Space

LOOP = "for numpy arrays, step rlsdk.environments.NumpyVectorEnv(env), or model.get_env()"


def no_tensors(action: object, wanted: str) -> UsageError:
    """The error for actions of a wrong type. `wanted` describes the accepted type."""
    return UsageError(
        f"actions are of type {type(action).__name__}; accepted: {wanted}, an action for each environment; {LOOP}"
    )


def not_finite(actions: object) -> DivergenceError:
    """The error for actions that are NaN or infinite."""
    return DivergenceError(f"the policy chose an action that is not finite: {actions}; its weights have diverged")


def part_of(actions: Any, key: str | int, space: Space) -> object:
    """The part `key` of actions in a Dict or Tuple space.

    Raises:
        UsageError: the actions have no such part.
    """
    try:
        part: object = actions[key]
    except (KeyError, IndexError, TypeError, ValueError):
        raise no_tensors(actions, f"a {type(space).__name__} of tensors, with the part {key!r}") from None
    return part


def without_record(observation: object, path: str) -> object:
    """The observation, unchanged.

    Raises:
        ObservationError: `observation` is a record, as vector environments of rlsdk return it.
    """
    if isinstance(observation, Observation | EnvStep):
        raise ObservationError(
            f"{path} is a record for algorithms ({type(observation).__name__}), not an array; {LOOP}"
        )
    return observation


def shape_of_value(value: Any, path: str) -> tuple[int, ...]:
    """The shape of an array, or of lists that can be converted to an array.

    Raises:
        ObservationError: the value cannot be converted to an array.
    """
    try:
        return np.shape(value)
    except (ValueError, TypeError, RuntimeError):  # lists of different lengths
        pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping)
        hint = "; reset gives (observation, info): pass its first part" if pair else ""
        raise ObservationError(f"{path} is a {type(value).__name__} that makes no array{hint}") from None
