"""What only `rlsdk check` finds out: rare changes of the process that importing a plugin makes, and rlsdk does not undo."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rlsdk_testing import import_state
from tests.plugin_site import Site
from tests.throwaway import GOOD

CHANGES = {
    "signal handlers": "signal.signal(signal.SIGINT, lambda *_: None)",
    "blocked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])",
    "sys.argv": "sys.argv[:] = ['x']",
    "builtins": "builtins.license = None",
    "the umask": "os.umask(0)",
    "the garbage collector": "gc.disable()",
    "interpreter settings": "sys.setrecursionlimit(500)",
    "exception hooks": "sys.excepthook = print",
    "logging": "logging.basicConfig(level=10, force=True)",
    "warning functions": "warnings.formatwarning = lambda *given, **named: ''",
    "the start method of processes": "multiprocessing.set_start_method('spawn', force=True)",
    "the locale": "locale.setlocale(locale.LC_ALL, 'C' if locale.setlocale(locale.LC_ALL) != 'C' else 'C.UTF-8')",
    "resource limits": "r = resource; r.setrlimit(r.RLIMIT_NOFILE, (99, r.getrlimit(r.RLIMIT_NOFILE)[1]))",
    "numpy's print options": "numpy.set_printoptions(precision=1)",
    "sys.meta_path": "sys.meta_path.clear()",
}
OF_RLSDK = "import attrs\nfrom rlsdk.registry import AlgorithmSpec, hookimpl\nfrom rlsdk.settings import AgentConfig"
"""What plugins import. It is imported before the changes, as some of these end all further imports."""
MODULES = "import builtins, gc, locale, logging, multiprocessing, numpy, os, resource, signal, sys, warnings"


def changed_by(site: Site, first: str) -> list[str]:
    site.add("bad", code=GOOD.format(first=f"{OF_RLSDK}\n{MODULES}\n{first}", id="bad"))
    command = [sys.executable, "-P", str(import_state.__file__), "bad", json.dumps([str(site.folder), *sys.path])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX")
def test_every_change_is_found(site: Site) -> None:
    assert changed_by(site, "\n".join(CHANGES.values())) == sorted(CHANGES)


@pytest.mark.full
def test_nothing_is_said_of_a_plugin_that_only_adds(site: Site) -> None:
    added = "logging.getLogger('acme').setLevel(10); builtins.acme = 1; sys.meta_path.append(signal)"
    assert changed_by(site, added) == []
