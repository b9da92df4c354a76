"""Helpful errors for attributes that a class does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from rlsdk.errors import UnknownAttributeError

T = TypeVar("T", bound=type)


def explaining(instead: Mapping[str, str]) -> Callable[[T], T]:
    """Return a class decorator that makes unknown attributes raise UnknownAttributeError.

    `instead` maps names that other libraries document for such a class to a hint, which the message contains.
    """

    def unknown(self: object, name: str) -> NoReturn:
        hint = f"; {instead[name]}" if name in instead else ""
        raise UnknownAttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def decorated(kind: T) -> T:
        setattr(kind, "__getattr__", unknown)  # noqa: B010  # set this way so that type checkers still report unknown names
        return kind

    return decorated
