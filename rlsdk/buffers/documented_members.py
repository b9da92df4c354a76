"""Members of documented replay buffers that those here do not have: each raises an error that names the replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.errors import UnknownAttributeError

INSTEAD = {
    "add": "rlsdk.interchange.remember(model, episodes) adds recorded episodes, and learn the steps it collects",
    "buffer_size": "model.buffer_size is its capacity",
    "full": "len(buffer) counts its transitions, model.buffer_size is its capacity",
    "pos": "len(buffer) counts its transitions",
    "reset": "make the agent again for an empty one",
    "rewards": "sample(size, generator) gives batches of its rows",
    "size": "len(buffer) counts its transitions, over all environments together",
}


class ExplainsDocumentedMembers:
    """Raises UnknownAttributeError for the names in `INSTEAD`, and for other unknown ones without advice."""

    if not TYPE_CHECKING:  # type checkers find unknown names themselves

        def __getattr__(self, name: str) -> object:
            hint = f"; {INSTEAD[name]}" if name in INSTEAD else ""
            raise UnknownAttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")
