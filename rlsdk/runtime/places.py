"""Files, folders and commands that settings and attributes name: no stored file may choose them."""

from __future__ import annotations

import re

PLACES = ("tensorboard_log", "replay_buffer_kwargs.directory")
"""Settings of agents (dotted names) that name a place on disk."""
NAMES = re.compile("path|folder|dir|file|prefix|url|log_to|command")
"""Names of settings and attributes whose texts are places."""
TEXT = re.compile(r"[/\\\x00-\x1f]|\.\.|^~|^[A-Za-z]:")
"""What a text that names a place may look like."""


def may_be_place(name: str, text: str) -> bool:
    """Whether `text`, in the setting or attribute `name`, may name a place.

    >>> may_be_place("log_dir", "mine"), may_be_place("activation", "relu"), may_be_place("activation", "/etc")
    (True, False, True)
    """
    return NAMES.search(name.lower()) is not None or TEXT.search(text) is not None
