"""Errors for members that a class lacks, which name what to use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rlsdk.errors import UnknownAttributeError


class ExplainsAbsentMembers:
    """Raises UnknownAttributeError for unknown names; those in `instead` are documented elsewhere, and get advice."""

    __slots__ = ()
    instead: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # type checkers find unknown names themselves

        def __getattr__(self, name: str) -> object:
            hint = f"; {self.instead[name]}" if name in self.instead else ""
            raise UnknownAttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")
