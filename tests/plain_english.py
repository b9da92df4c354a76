"""What users read is plain English: `python -m tests.plain_english` lists sentences that are too long and odd words.

It reads the pages, the help of every command, the texts of settings and the messages of exceptions. `make lint` runs it.
Spelling is checked by codespell, which has no rule for the length of a sentence.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import typer
from typer.core import TyperGroup

ROOT = Path(__file__).parents[1]
LONGEST = 30
"""Words in a sentence. Code in backticks is one word; a table cell and an item of a list are sentences of their own."""

LIMITS = {"CHANGELOG.md": 45}
"""End of a path -> its own limit: entries of a CHANGELOG are lists of names."""

SKIPPED = {
    "docs/contracts.md": "made from the statements of the contract kit",
    "docs/planted-bugs.md": "made from the planted bugs",
    "docs/decisions": "records of their time, for people who work on rlsdk",
    "docs/cards": "generated, from the texts of settings",
    "docs/notebooks": "generated, from the notebooks in examples/notebooks",
    "docs/commands": "generated, from the help",
    "docs/reference": "generated, from docstrings",
}
"""Beginning of a path -> why its pages are not read."""

WORDS = {
    r"at once": "immediately, or at the same time",
    r"to the bit": "bit for bit, or exactly",
    r"by hand": "manually, or step by step",
    r"of (?:its|their|your|our) own": "own, separate, or alone",
    r"besides": "in addition",
    r"beside": "next to, or compared with",
    r"seldom": "rarely",
    r"singly": "one at a time",
    r"in turns": "alternately",
    r"replay memor(?:y|ies)": "replay buffer",
    r"remember(?:s|ed)?": "store, or recurrent",
    r"strangers?": "third party",
    r"told|tells?": "report, notify or name",
    r"wants?|wanted": "expect, need or request",
    r"knows?|known to": "have, support or registered",
    r"whoever|whatever|nobody": "a name for the person or the thing",
    r"as it was|as they were": "unchanged",
    r"comes? along": "is imported, or is included",
    r"out of tree": "in a separate package",
    r"lest|thereof|thereby|hitherto|anew|ere": "a common word",
    r"none stays|that is none|and said": "a sentence with a subject",
    r"an otherwise idle machine": "when no other program uses the processor",
    r"goes? on|went on": "continue",
    r"asked for": "requested",
    r"documented": "the name of the library, or: has a description",
    r"sinks?": "logger",
    r"carry|carries": "recurrent state, or has",
    r"plans?": "training loop",
    r"fillers?": "padding",
    r"ours": "rlsdk",
    r"given up early": "pruned",
    r"(?:made|wrapped) otherwise": "differently configured, or wrapped differently",
    r"in any bit": "the result",
}
"""Odd words and idioms -> what to write instead. Case does not matter."""

_ODD = re.compile("|".join(rf"(?P<w{number}>\b(?:{word})\b)" for number, word in enumerate(WORDS)), re.IGNORECASE)
_FENCE = re.compile(r"^(```|:::)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+|^#+\s+|^>\s*")
_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)(?<!\.\.\.)[)*_\"']*\s+(?=[\"'(*_`\[A-Z0-9-]|rlsdk)")


@dataclass(frozen=True)
class Passage:
    """A piece of text without code, and its place."""

    place: str
    line: int
    text: str


def _prose(text: str) -> str:
    """Return the text of Markdown without code, links and marks."""
    text = re.sub(r"<[^<>]*>", "", re.sub(r"`+[^`]+`+", "CODE", text))
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\s+", " ", text.replace("**", "")).strip()


def passages(place: str, page: str) -> Iterator[Passage]:
    """The paragraphs, items and table cells of a page."""
    found: list[str] = []
    began, fenced = 0, False
    for number, line in enumerate([*page.splitlines(), ""], 1):
        mark, table = _FENCE.match(line), line.lstrip().startswith("|")
        if mark or fenced or table or not line.strip() or _ITEM.match(line):
            if found:
                yield Passage(place, began, _prose(" ".join(found)))
            found = []
        if mark:
            fenced = not fenced
        elif table and not fenced:
            yield from (Passage(place, number, _prose(cell)) for cell in re.split(r"(?<!\\)\|", line) if cell.strip())
        elif not fenced and line.strip():
            began = began if found else number
            found.append(_ITEM.sub("", line))


def pages() -> Iterator[Passage]:
    """Every page that users read."""
    kinds = ("*.md", "docs/**/*.md", "plugins/*/*.md", "contrib_algos/*/*.md", "examples/**/*.md")
    for path in sorted(path for kind in kinds for path in ROOT.glob(kind)):
        place = path.relative_to(ROOT)
        hidden = any(part.startswith((".", "_")) for part in place.parts)
        if not hidden and not place.as_posix().startswith(tuple(SKIPPED)):
            yield from passages(place.as_posix(), path.read_text(encoding="utf-8"))


def helps() -> Iterator[Passage]:
    """The help of every command and of its options and arguments."""
    from rlsdk.cli.main import app

    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    yield from _helps(group, "rlsdk")


def _helps(group: TyperGroup, before: str) -> Iterator[Passage]:
    for name, command in sorted(group.commands.items()):
        place = f"{before} {name}"
        yield Passage(f"{place} --help", 0, _prose(command.help or ""))
        for option in command.params:
            yield Passage(f"{place} --help: {option.name}", 0, _prose(getattr(option, "help", "") or ""))
        if isinstance(command, TyperGroup):
            yield from _helps(command, place)


def _literal(node: ast.AST) -> str:
    """The text of a string literal; a value in an f-string counts as one word."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join("code" if isinstance(part, ast.FormattedValue) else _literal(part) for part in node.values)
    return _literal(node.left) + _literal(node.right) if isinstance(node, ast.BinOp) else ""


@cache
def code() -> tuple[tuple[Path, ast.Module], ...]:
    """The modules of the core and of every package."""
    folders = ("rlsdk", "plugins/*/src", "contrib_algos/*/src")
    paths = sorted(path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py"))
    return tuple((path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths)


def settings() -> Iterator[Passage]:
    """The descriptions of settings, `described("...")`, and the docstring of every package."""
    for path, module in code():
        place = path.relative_to(ROOT).as_posix()
        if path.name == "__init__.py":
            paragraphs = (ast.get_docstring(module) or "").split("\n\n")
            yield from (Passage(place, 1, _prose(each)) for each in paragraphs if "(" not in each)  # without code
        for node in ast.walk(module):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "described"
                and node.args
            ):
                yield from (Passage(place, node.lineno, _prose(part)) for part in _literal(node.args[0]).split(";"))


def messages() -> Iterator[Passage]:
    """The texts of exceptions that are raised."""
    for path, module in code():
        if path.parent.name == "rlsdk_testing":
            continue  # failures of clauses: the kit does not change while its results are measured
        for node in ast.walk(module):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                for part in _literal(node.exc.args[0]).split(";") if node.exc.args else ():
                    yield Passage(path.relative_to(ROOT).as_posix(), node.lineno, _prose(part))


def limit(place: str) -> int:
    """How many words a sentence of a page may have."""
    return next((words for name, words in LIMITS.items() if place.endswith(name)), LONGEST)


def sentences(text: str) -> list[str]:
    """The sentences of a passage."""
    return [sentence for sentence in _END.split(text) if sentence]


def problems(passage: Passage) -> list[str]:
    """One line for each odd word and each long sentence."""
    where, found = f"{passage.place}:{passage.line}", []
    for sentence in sentences(passage.text):
        count = len(re.findall(r"[A-Za-z][\w'-]*", sentence))
        if count > limit(passage.place):
            found.append(f"{where}: {count} words, at most {limit(passage.place)}: {sentence}")
    for match in _ODD.finditer(passage.text):
        instead = list(WORDS.values())[int(str(match.lastgroup)[1:])]
        found.append(
            f"{where}: {match[0]!r}: write {instead}: {passage.text[max(0, match.start() - 40) : match.end() + 40]}"
        )
    return found


def everything() -> list[str]:
    """The problems of all pages, helps and messages."""
    return [line for source in (pages, helps, settings, messages) for passage in source() for line in problems(passage)]


def main() -> int:
    """Print all problems; return 1 if there are any."""
    found = everything()
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
