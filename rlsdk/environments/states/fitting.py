"""Checks whether a value from a file may replace the value of an attribute: both must be of the same kind."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments.states import simulation
from rlsdk.environments.states.reader import MISSING
from rlsdk.environments.states.simulation import class_name
from rlsdk.environments.states.values import is_constant
from rlsdk.errors import ArtifactError
from rlsdk.runtime.places import may_be_place

NUMBERS = (bool, int, float, complex, np.generic)
TEXTS = (str, bytes)
SEQUENCES = (list, tuple, np.ndarray, deque, torch.Tensor)
OTHERS: tuple[type, ...] = (dict, set, frozenset, np.random.RandomState, random.Random, torch.Generator)


def require_fit(where: str, value: object, present: object, *, assigned: bool) -> None:
    """Raises ArtifactError unless `value` may replace `present` as the value of the attribute `where`.

    Args:
        where: the name of the attribute for the message.
        value: the value from the file.
        present: the present value; `MISSING` if the attribute does not exist yet.
        assigned: whether code of the environment assigns the attribute. Then it may change between numbers, sequences and
            arrays. Otherwise type, shape and dtype must stay the same.
    """
    if _stays(present) or _stays(value):
        fits = value is present
    elif present is MISSING or present is None or value is None:
        fits = assigned or present is value
    else:
        fits = _alike(value, present) if assigned else _same_kind(value, present)
    if not fits:
        raise ArtifactError(
            f"the file is damaged, or of an environment made otherwise: {where} is {_named(present)} here, and"
            f" {_named(value)} in the file"
        )


def _stays(value: object) -> bool:
    """Whether a value is a constant, a space or a simulation. The environment's object of this kind is never replaced."""
    return is_constant(value) or isinstance(value, gymnasium.Space) or class_name(value) == simulation.CLASS


def _named(value: object) -> str:
    shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return "nothing" if value is MISSING else f"a {type(value).__name__}{shape}"


def _alike(value: object, present: object) -> bool:
    if isinstance(value, np.ndarray) and isinstance(present, np.ndarray):
        return value.ndim == present.ndim and _numeric(value) == _numeric(present)
    if isinstance(value, TEXTS) or isinstance(present, TEXTS):
        return isinstance(value, TEXTS) and isinstance(present, TEXTS)
    data = (*NUMBERS, *SEQUENCES)
    if isinstance(value, data) and isinstance(present, data):
        return True
    return _same_kind(value, present)


def _numeric(array: NDArray[np.generic]) -> bool:
    return array.dtype.kind in "biufc"


def _same_kind(value: object, present: object) -> bool:
    if isinstance(present, np.random.Generator) and isinstance(value, np.random.Generator):
        return type(value.bit_generator) is type(present.bit_generator)
    if isinstance(present, np.ndarray) and isinstance(value, np.ndarray):
        return bool(value.shape == present.shape and value.dtype == present.dtype)
    return type(value) is type(present)


def may_name_place(name: str, value: object, present: object) -> bool:
    """Whether `value` contains a text that may be the name of a file or folder and that is not in `present`.

    `name` is the name of the attribute that would get the value.
    """
    known = set(texts_in(present))
    return any(text not in known and may_be_place(name, text) for text in texts_in(value))


def texts_in(value: object) -> Iterator[str]:
    """Yield every text inside a value: in containers, and in arrays of texts."""
    pending, seen = [value], set[int]()
    while pending:
        item = pending.pop()
        if isinstance(item, str | np.str_):
            yield str(item)
        elif isinstance(item, bytes | np.bytes_):
            yield bytes(item).decode("latin-1")
        elif isinstance(item, np.ndarray) and item.dtype.kind in "SU":
            pending.extend(np.unique(item).tolist())
        elif isinstance(item, dict | list | tuple | set | frozenset | deque) and id(item) not in seen:
            seen.add(id(item))
            pending.extend((*item, *item.values()) if isinstance(item, dict) else item)
