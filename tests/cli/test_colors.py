"""Colors of pages, errors and warnings: in a terminal, and nowhere else."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from rlsdk.runtime.output import PrintableStream

CODES = re.compile("\x1b\\[[0-9;]*m")
RLSDK = [sys.executable, "-m", "rlsdk"]


def in_terminal(arguments: list[str], **variables: str) -> str:
    """What `rlsdk` prints, both streams together, in a pseudo-terminal."""
    pty = pytest.importorskip("pty")
    theirs, ours = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", **variables}
    if "NO_COLOR" not in variables:
        environment.pop("NO_COLOR", None)
    started = subprocess.Popen([*RLSDK, *arguments], stdout=ours, stderr=ours, stdin=ours, env=environment)
    os.close(ours)
    printed = b""
    while True:
        try:
            part = os.read(theirs, 65536)
        except OSError:  # on Linux, how the end is reported
            break
        if not part:
            break
        printed += part
    os.close(theirs)
    started.wait()
    return printed.decode().replace("\r\n", "\n")


def in_pipe(arguments: list[str]) -> str:
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run([*RLSDK, *arguments], capture_output=True, text=True, check=False, env=environment).stdout


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["zoo", "--help"]], ids=" ".join)
def test_pages_have_colors_in_a_terminal_only(arguments: list[str]) -> None:
    colored, plain = in_terminal(arguments), in_pipe(arguments)
    assert CODES.sub("", colored) == plain
    assert "\x1b" not in plain
    assert colored.startswith("\x1b[1mUsage:\x1b[0m ")
    assert "\x1b[1mOptions:\x1b[0m\n" in colored or "\x1b[1mEvaluation:\x1b[0m\n" in colored
    assert "  \x1b[36m--help\x1b[0m  " in colored


def test_names_of_commands_have_the_color() -> None:
    colored = in_terminal([])  # without arguments, the page is on standard error
    assert re.search(r"^  \x1b\[36mlist\x1b\[0m +List the installed", colored, re.MULTILINE)
    assert "\x1b[36mTrain" not in colored, "not the text above the options"


def test_no_color_is_heeded() -> None:
    assert "\x1b" not in in_terminal(["--help"], NO_COLOR="1")
    assert "\x1b" not in in_terminal(["run", "ppo", "--stps"], NO_COLOR="1")


def test_errors_have_a_color() -> None:
    assert in_terminal(["run", "ppo", "--stps"]).startswith("\x1b[1;31merror: \x1b[0mNo such option")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("warning: 300 steps\n", "\x1b[33mwarning: \x1b[0m300 steps\n"),
        ("error: a\x1b[2Jb error: c", "\x1b[1;31merror: \x1b[0ma\\x1b[2Jb error: c"),
        ("the error: is\n", "the error: is\n"),
        ("Usage: rlsdk\n\nA title:\n  -o, --out <x>  Text: a\n  name  b\n\n  Two words.\n",
         "\x1b[1mUsage:\x1b[0m rlsdk\n\n\x1b[1mA title:\x1b[0m\n  \x1b[36m-o, --out\x1b[0m <x>  Text: a\n"
         "  \x1b[36mname\x1b[0m  b\n\n  Two words.\n"),
    ],
)  # fmt: skip
def test_what_a_terminal_gets(text: str, written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape codes of texts, such as those of an environment, stay visible characters."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        assert PrintableStream(stream).write(text) == len(text)
    assert terminal.getvalue() == written
    assert file.getvalue() == CODES.sub("", written)
    ascii_only: Any = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    ascii_only.isatty = lambda: True
    PrintableStream(ascii_only).write("error: ü")
    ascii_only.flush()
    assert ascii_only.buffer.getvalue() == b"\x1b[1;31merror: \x1b[0m\\xfc"
