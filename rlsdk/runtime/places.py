"""Recognises settings and attributes that name files, folders or commands. A file that is loaded may not set these."""

from __future__ import annotations

import re

PLACES = ("tensorboard_log", "replay_buffer_kwargs.directory")
"""Settings of agents (dotted names) that name a path on disk."""
NAMES = re.compile("path|folder|dir|file|prefix|url|log_to|command")
"""A pattern in the names of settings and attributes that hold a path, an address or a command."""
TEXT = re.compile(r"[/\\\x00-\x1f]|\.\.|^~|^[A-Za-z]:")
"""A pattern in text that may be a path, an address or a command."""


def may_be_place(name: str, text: str) -> bool:
    """Whether `text`, the value of the setting or attribute `name`, may be a path, an address or a command.

    >>> may_be_place("log_dir", "mine"), may_be_place("activation", "relu"), may_be_place("activation", "/etc")
    (True, False, True)
    """
    return NAMES.search(name.lower()) is not None or TEXT.search(text) is not None
