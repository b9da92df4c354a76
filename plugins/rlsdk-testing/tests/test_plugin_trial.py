"""`rlsdk check` and `rlsdk doctor` load plugins in separate processes, whose end they survive."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from rlsdk.registry import plugins
from rlsdk_testing import plugin_trial
from rlsdk_testing.child_process import ChildProcess
from tests.plugin_site import Site
from tests.throwaway import GOOD


def bad(site: Site, first: str, identity: str = "bad") -> None:
    site.add(identity, code=GOOD.format(first=first, id=identity))
    plugins(rescan=True)


ENDS = {
    "os._exit(0)": ("import os; os._exit(0)", "SystemExit: os._exit(0)"),
    "a hard exit": ("import ctypes; ctypes.CDLL(None)._exit(0)", "ended the process with exit code 0"),
    "a crash": (
        "import ctypes; ctypes.string_at(0)",
        "ended the process by SIGSEGV in <module> (acme_bad/plugin.py, line 2)",
    ),
    "a loop": ("while True: pass", "did not end within 1 s"),
    "sleep": ("import time; time.sleep(600)", "did not end within 1 s"),
    "memory": ("import time; x = bytearray(9 * 10**8); time.sleep(600)", "used more than 0.9 GB of memory"),
    "another program": ("import os; os.execv('/bin/false', ['false'])", "ended the process with exit code 1"),
    "an exit at the end": ("import atexit, os; atexit.register(os._exit, 3)", None),
    "a thread": ("import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()", "started threads"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", ENDS)
def test_looking_survives(site: Site, cli: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """They run no plugin code in their own process, and wait for it for a limited time only."""
    first, words = ENDS[name]
    monkeypatch.setattr(plugin_trial, "SECONDS", 1.0 if "did not" in (words or "") else 20.0)
    monkeypatch.setattr(ChildProcess, "MEMORY", 9 * 10**8)
    bad(site, first)
    monkeypatch.setenv("RLSDK_PLUGINS", "testing,bad")
    code, out, err = cli("doctor")
    assert code == (0 if words is None else 1), err
    assert (words or "plugin acme-bad/bad 1.2.3: usable") in out
    if "BROKEN" in out:
        code, out, err = cli("check", "bad")
        assert (code, len(err.splitlines()), str(words) in err) == (1, 1, True)
    assert not any(name.startswith("acme_") for name in sys.modules)
    assert not [line for line in _children() if "rlsdk_testing.plugin_trial" in line]


def _children() -> list[str]:
    lines = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(place.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if str(os.getpid()) in line]


def test_doctor_goes_on(site: Site, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_trial, "SECONDS", 10.0)
    monkeypatch.setenv("RLSDK_PLUGINS", "testing,good,bad,worse,loud")
    for identity, first in (
        ("bad", ENDS["os._exit(0)"][0]),
        ("worse", ENDS["a crash"][0]),
        ("loud", "import os; os.chdir('/')"),
    ):
        bad(site, first, identity)
    code, out, _ = cli("doctor")
    assert code == 1
    assert "plugin acme-good/good 1.2.3: usable\n" in out
    assert "plugin acme-bad/bad 1.2.3: BROKEN: " in out
    assert "plugin acme-worse/worse 1.2.3: BROKEN: " in out
    assert "WARNING: plugin acme-loud/loud 1.2.3 changed the working directory (put back)" in out
