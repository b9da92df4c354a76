"""The entry points of installed distributions. A damaged one is listed as broken, and the others are still found.

`importlib.metadata.entry_points` raises an error for all distributions if one of them is not UTF-8 or has a line without `=`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

import attrs

from rlsdk.errors import one_line
from rlsdk.runtime.plain_files import PlainFileError, read_plain

GROUP = "rlsdk.plugins"
_SECTION = re.compile(rb"^[ \t]*\[[ \t]*" + re.escape(GROUP).encode() + rb"[ \t]*\]", re.MULTILINE)
_PLACE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*)(?:\s*:\s*([^\W\d]\w*(?:\.[^\W\d]\w*)*))?\s*(?:\[[^\]]*\])?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LIMIT = 1024 * 1024
"""The largest size of a metadata file in bytes; it is large because descriptions of packages may be long."""


@attrs.frozen(kw_only=True)
class Entry:
    """One line of the file `entry_points.txt` of a distribution."""

    name: str
    distribution: str
    version: str
    module: str = ""
    attribute: str = ""
    """The dotted name of an object in the module; empty if the entry point is the module itself."""
    problem: str | None = None
    """Why the line cannot be used."""


def scan() -> tuple[Entry, ...]:
    """Return every entry point of the group `rlsdk.plugins`, also broken ones, sorted by name.

    If a distribution is installed several times, only the first copy is used.
    """
    found, seen = list[Entry](), set[str]()
    for distribution in _distributions():
        folder = getattr(distribution, "_path", None)  # no public name; zip archives have no folder
        stem = folder.name if isinstance(folder, Path) else ""
        known = _normalized(stem.rpartition(".")[0].partition("-")[0])
        if known and known in seen:
            continue
        seen.add(known)
        found.extend(_entries(distribution, folder if isinstance(folder, Path) else None))
    return tuple(sorted(found, key=lambda entry: (entry.name, entry.distribution)))


def _distributions() -> Iterator[Distribution]:
    """Yield the installed distributions; stop without an error if a folder on the path cannot be listed."""
    try:
        yield from distributions()
    except (OSError, ValueError):
        return


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _entries(distribution: Distribution, folder: Path | None) -> Iterator[Entry]:
    problem: str | None = None
    try:
        content = _content(distribution, folder, "entry_points.txt")
    except PlainFileError as error:
        if folder is None or not _is_ours(folder):
            return
        content, problem = b"", f"its entry_points.txt {error}"
    if problem is None and not _SECTION.search(content or b""):
        return
    name, number = _identity(distribution, folder)
    text = ""
    if problem is None:
        try:
            text = (content or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            problem = f"its entry_points.txt is not UTF-8: byte {error.start}"
    if problem is not None:
        yield Entry(name=name, distribution=name, version=number, problem=f"{problem}; install it again")
        return
    known = dict[str, Entry]()
    for line in _lines(text):
        entry = _parsed(line, name, number)
        if entry.name in known:
            entry = attrs.evolve(entry, problem="its entry_points.txt names it more than once")
        known[entry.name] = entry
    yield from known.values()


def _is_ours(folder: Path) -> bool:
    """Return whether a distribution whose entry points cannot be read is a plugin, that is, contains an rlsdk.toml."""
    try:
        return b"/rlsdk.toml" in (read_plain(folder / "RECORD", _LIMIT) or b"")
    except PlainFileError:
        return False


def _content(distribution: Distribution, folder: Path | None, name: str) -> bytes | None:
    if folder is not None:
        return read_plain(folder / name, _LIMIT)
    try:
        text = distribution.read_text(name)
    except (OSError, ValueError) as error:
        raise PlainFileError(f"cannot be read: {one_line(error, 300)}") from None
    return None if text is None else text.encode()


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of the section `rlsdk.plugins`, without comments and empty lines."""
    inside = False
    for line in map(str.strip, text.split("\n")):
        if line.startswith("["):
            inside = line.strip("[] \t") == GROUP
        elif inside and line and not line.startswith(("#", ";")):
            yield line


def _parsed(line: str, distribution: str, number: str) -> Entry:
    name, equals, value = (part.strip() for part in line.partition("="))
    entry = Entry(name=one_line(name, 100) or distribution, distribution=distribution, version=number)
    place = _PLACE.fullmatch(value)
    if not _NAME.fullmatch(name):
        return attrs.evolve(entry, problem="its entry point's name must be of letters, digits, '-', '_' and '.'")
    if not equals or place is None:
        return attrs.evolve(
            entry,
            problem=f"its entry point {one_line(line, 100)!r} names no module; write for example 'my_package.plugin'",
        )
    return attrs.evolve(entry, module=place[1], attribute=place[2] or "")


def _identity(distribution: Distribution, folder: Path | None) -> tuple[str, str]:
    """Return (name, version) from METADATA if that can be read and agrees with the folder's name, else from that name."""
    stem = folder.name.rpartition(".")[0] if folder is not None else ""
    name, _, number = stem.partition("-")
    name = _normalized(name)
    headers = dict[str, str]()
    for file in ("METADATA", "PKG-INFO"):
        try:
            content = _content(distribution, folder, file) or b""
        except PlainFileError:
            continue
        for line in content.decode("utf-8", "replace").split("\n\n")[0].splitlines()[:200]:
            key, _, value = line.partition(":")
            headers.setdefault(key.strip().lower(), value.strip())
    stated = headers.get("name", "")
    if _NAME.fullmatch(stated) and (not name or _normalized(stated) == name):
        name = stated
    stated = headers.get("version", "")
    if re.fullmatch(r"[\w.!+-]{1,100}", stated):
        number = stated
    return one_line(name or "unknown", 100), one_line(number or "unknown", 100)
