"""Texts for one line of a terminal or a message: without control characters, at most a given length."""

from __future__ import annotations

import unicodedata

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that move the cursor, reorder or hide text, or cannot be encoded."""


def printable(text: str) -> str:
    r"""`text` with control characters written as escapes; newlines and tabs stay.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in HIDDEN else _escaped(c) for c in text)


def one_line(value: object, most: int | None = None) -> str:
    r"""The text of a value, for one line of a table or message: newlines and tabs are escaped too. Of a text with more than
    `most` characters the rest is left out.

    >>> one_line("a\nb")
    'a\\nb'
    >>> one_line("abcdef", 3)
    'abc...'
    """
    cut = str(value) if most is None else str(value)[: most + 1]  # escapes make it longer, never shorter
    text = "".join(_escaped(c) if c in "\n\t" else c for c in printable(cut))
    return text if most is None or len(text) <= most else f"{text[:most]}..."


def shown(value: object, most: int = 300) -> str:
    """`repr` of a value for a message: on one line, at most about `most` characters, and of values whose `repr` raises too.

    >>> shown("a" * 9, 4)
    "'aaa..."
    """
    try:
        text = repr(value)
    except Exception as error:
        if isinstance(value, int):  # of more than 4,300 digits
            return "a very large number"
        text = f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return one_line(" ".join(line.strip() for line in text.splitlines()), most)  # arrays have a line for each row


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
