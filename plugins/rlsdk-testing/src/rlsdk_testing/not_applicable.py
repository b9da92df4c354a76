"""The exception that a check raises if its clause does not apply to an algorithm."""

from __future__ import annotations


class NotApplicable(Exception):  # noqa: N818  # not an error: the clause does not apply to this plugin
    """A clause does not apply to this plugin; the message is the reason."""
