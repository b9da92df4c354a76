"""What a clause raises if it does not apply to an algorithm."""

from __future__ import annotations


class NotApplicable(Exception):  # noqa: N818  # not an error: the clause does not concern this plugin
    """Raised by a check that has nothing to check in this plugin."""
