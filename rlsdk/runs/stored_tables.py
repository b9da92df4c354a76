"""Read JSON tables from files. The files may be damaged, or written by someone else, so every entry is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsdk.errors import SettingsError

MAX_BYTES = 1 << 24
MAX_COUNT = 2**53


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """Return the text of a regular file.

    Raises:
        SettingsError: the path is missing or not a file, the file is larger than `limit` bytes, or it is not UTF-8.
    """
    try:
        if not path.is_file():  # reading a named pipe would never end
            raise SettingsError(f"{path} is missing, or is not a file")
        if path.stat().st_size > limit:
            raise SettingsError(f"{path} is damaged: it is larger than {limit:,} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is damaged: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise error if isinstance(error, SettingsError) else SettingsError(f"{path} cannot be read: {error}") from None


def read_table(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        SettingsError: as `read_text`, or the file does not contain a JSON object.
    """
    try:
        table = json.loads(read_text(path))
    except SettingsError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else f"it is not JSON ({error})"
        raise SettingsError(f"{path} is damaged: {reason}") from None
    if not isinstance(table, dict):
        raise SettingsError(f"{path} is damaged: it holds no table")
    return table


class Entries:
    """The entries of a table. Every method checks an entry and raises SettingsError if it is wrong or missing.

    `source` names the table in errors.
    """

    def __init__(self, table: Mapping[str, object], source: str) -> None:
        self.table, self.source = table, source

    def _wrong(self, name: str, wanted: str) -> SettingsError:
        if name not in self.table:
            return SettingsError(f"{self.source} is damaged: it has no {name}; it needs {wanted}")
        return SettingsError(f"{self.source} is damaged: {name} = {str(self.table[name])[:80]!r} is not {wanted}")

    def count(self, name: str, default: int | None = None, least: int = 1, most: int = MAX_COUNT) -> int:
        """Return the entry `name` as a whole number from `least` to `most`. Without a default, it is required."""
        value = self.table.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return the entry `name` as a finite number. Without a default, it is required."""
        value = self.table.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
            raise self._wrong(name, "a finite number")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """Return the entry `name` as a finite number; None if it is absent."""
        return None if self.table.get(name) is None else self.number(name)

    def optional_count(self, name: str, least: int = 0, most: int = MAX_COUNT) -> int | None:
        """Return the entry `name` as a whole number from `least` to `most`; None if it is absent."""
        return None if self.table.get(name) is None else self.count(name, least=least, most=most)

    def optional_text(self, name: str) -> str | None:
        """Return the entry `name` as text; None if it is absent."""
        return None if self.table.get(name) is None else self.text(name)

    def text(self, name: str, default: str | None = None) -> str:
        """Return the entry `name` as text. Without a default, it is required."""
        value = self.table.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return the entry `name` as a bool, or `default` if it is absent."""
        value = self.table.get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the entry `name` as a tuple of texts, empty if it is absent."""
        value = self.table.get(name) or []
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self._wrong(name, "a list of texts")
        return tuple(value)

    def table_of(self, name: str) -> dict[str, Any]:
        """Return the entry `name` as a table, empty if it is absent."""
        value = self.table.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name, "a table")
        return value
