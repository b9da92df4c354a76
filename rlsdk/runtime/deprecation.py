"""A decorator for deprecated names. Using such a name warns of its replacement and of the version that removes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from typing_extensions import deprecated as _marked

NamedT = TypeVar("NamedT", bound=Callable[..., object])
PENDING: dict[str, str] = {}
"""Deprecated name -> the first version without it; a test fails once that version is reached."""


def deprecated(*, instead: str, removed_in: str) -> Callable[[NamedT], NamedT]:
    """Mark a function or class as deprecated (PEP 702, so that type checkers warn too).

    Args:
        instead: the replacement, as the end of a sentence that begins with "use".
        removed_in: the first version of the package without the name, at least one minor version away.
    """

    def mark(old: NamedT) -> NamedT:
        name = f"{old.__module__}.{old.__qualname__}"
        PENDING[name] = removed_in
        marked: NamedT = _marked(f"{name} is deprecated and goes in {removed_in}; use {instead}")(old)
        return marked

    return mark
