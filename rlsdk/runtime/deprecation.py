"""Deprecated names: using one warns with its replacement and the version that removes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from typing_extensions import deprecated as _marked

NamedT = TypeVar("NamedT", bound=Callable[..., object])
PENDING: dict[str, str] = {}
"""Deprecated name -> version that no longer has it; a test fails once that version is reached."""


def deprecated(*, instead: str, removed_in: str) -> Callable[[NamedT], NamedT]:
    """Mark a function or class (PEP 702: type checkers see it too).

    Args:
        instead: what to use, as a sentence continues after "use".
        removed_in: the version of the package that will not have it any more, at least one minor version away.
    """

    def mark(old: NamedT) -> NamedT:
        name = f"{old.__module__}.{old.__qualname__}"
        PENDING[name] = removed_in
        marked: NamedT = _marked(f"{name} is deprecated and goes in {removed_in}; use {instead}")(old)
        return marked

    return mark
