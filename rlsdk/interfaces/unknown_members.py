"""Errors for members that an implementation of an interface lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from rlsdk.errors import UnknownAttributeError

T = TypeVar("T", bound=type)


def explaining(instead: Mapping[str, str]) -> Callable[[T], T]:
    """A class decorator: names that the class lacks raise UnknownAttributeError; those in `instead`, which other libraries
    document for such a class, name what to use."""

    def unknown(self: object, name: str) -> NoReturn:
        hint = f"; {instead[name]}" if name in instead else ""
        raise UnknownAttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def decorated(kind: T) -> T:
        setattr(kind, "__getattr__", unknown)  # noqa: B010  # hidden from type checkers, which find unknown names
        return kind

    return decorated
