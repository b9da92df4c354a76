"""Importing a plugin does not change the state of the process, and what it does is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rlsdk.errors import PluginError
from rlsdk.registry import find, load, loading, plugins
from rlsdk.registry.guard import PluginSideEffect, of_library, of_process, protected
from tests.effort import limited
from tests.plugin_site import Site
from tests.throwaway import GOOD

ATTACKS = {
    "environment variables: X": "os.environ['X'] = '1'",
    "environment variables: PATH": "del os.environ['PATH']",
    "sys.path": "sys.path.clear()",
    "loaded modules: random": "sys.modules['random'] = None",
    "loaded modules: json": "import json; del sys.modules['json']",
    "the working directory": "os.chdir('/')",
    "warning filters": "warnings.simplefilter('ignore')",
    "Python's random state": "import random; random.seed(31_415)",
    "numpy's random state": "numpy.random.seed(31_415)",
    "numpy's error handling": "numpy.seterr(all='raise')",
    "torch's random state": "torch.manual_seed(3)",
    "torch's thread count": "torch.set_num_threads(torch.get_num_threads() + 1)",
    "torch's default dtype": "torch.set_default_dtype(torch.float64)",
    "torch's default device": "torch.set_default_device('meta')",
    "torch's grad mode": "torch.set_grad_enabled(False)",
}
NAMES: dict[str, Any] = {"signal": signal, "os": os, "sys": sys, "warnings": warnings, "torch": torch}


def state() -> dict[str, Any]:
    everything = {each.name: each.get() for each in [*of_process(), *of_library("numpy"), *of_library("torch")]}
    return {name: value for name, value in everything.items() if name != "loaded modules"}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt. In background processes of a shell, SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("what", "code"), ATTACKS.items(), ids=ATTACKS)
@pytest.mark.parametrize("fails", [False, True])
def test_state_is_put_back(what: str, code: str, fails: bool) -> None:
    import numpy as np

    # import the modules that the attacks use before the plugin is imported
    exec("import json, random", {})
    before, modules = state(), {name: sys.modules[name] for name in ("json", "random", "torch")}
    failure: BaseException | None = None
    effects: list[str] = []
    try:
        with protected("acme/bad") as effects:
            exec(code, {**NAMES, "numpy": np})
            if fails:
                raise RuntimeError("no GPU found")
    except RuntimeError as error:
        failure = error
    after = state()
    changed = [name for name in before if before[name] != after[name] and name != "warning filters"]
    assert not changed
    assert all(sys.modules[name] is module for name, module in modules.items())
    assert any(what in effect and "(put back)" in effect for effect in effects), effects
    if fails:
        assert any(what in note for note in getattr(failure, "__notes__", []))
        assert str(failure) == "no GPU found"


def test_nothing_is_said_of_a_plugin_that_changes_nothing() -> None:
    for code in ("", "import numpy, torch", "warnings.filterwarnings('ignore', message='numpy.dtype size changed')"):
        with protected("acme/good") as effects:
            exec(code, dict(NAMES))
        assert effects == []
        warnings.filters[:] = [each for each in warnings.filters if "dtype size" not in str(each)]  # type: ignore[index]


def test_it_costs_little() -> None:
    with limited(5.0):
        for _ in range(20):
            with protected("acme/good"):
                pass


def bad(site: Site, first: str, identity: str = "bad") -> None:
    site.add(identity, code=GOOD.format(first=first, id=identity))
    plugins(rescan=True)


CHILD = """
import os, sys, warnings
sys.path.insert(0, sys.argv[1])
from rlsdk.errors import PluginError
from rlsdk.registry import load
try:
    load("bad")
except PluginError as error:
    print("error:", error)
else:
    print("fine")
print("error output works", file=sys.stderr)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("first", "flags", "words"),
    [
        ("import os; os._exit(0)", [], "is broken: importing it raised SystemExit: os._exit(0)"),
        ("import sys; sys.exit(0)", [], "is broken: importing it raised SystemExit: 0"),
        ("import sys; sys.stdout.close(); sys.__stdout__.close(); 1 / 0", [], "division by zero"),
        ("import os; os.close(1); os.close(2); raise OSError('no GPU found')", [], "no GPU found"),
        ("import sys; sys.stdout = sys.stderr = None; 1 / 0", [], "division by zero"),
        ("import random; random.seed(1); raise OSError('no GPU found')", ["-W", "error"], "no GPU found"),
        ("import random; random.seed(1)", ["-W", "error"], "(put back) while it was imported; warnings are errors"),
        ("raise OSError('two\\\\nlines \\\\x1b[2J')", [], "OSError: two\\nlines \\x1b[2J"),
        ("class E(Exception):\\n    def __str__(self): 1 / 0\\nraise E", [], "E: (its message cannot be shown)"),
    ],
)  # fmt: skip
def test_the_cause_is_seen(site: Site, first: str, flags: list[str], words: str) -> None:
    """The import of a plugin may fail in any way, or end its process: the caller continues and reports the cause."""
    bad(site, first.replace("\\n", "\n").replace("\\\n", "\\n").replace("\\\\x", "\\x"))
    done = subprocess.run(
        [sys.executable, *flags, "-c", CHILD, str(site.folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert "error output works" in done.stderr


@pytest.mark.full
def test_a_plugin_may_ask_and_end_other_processes(site: Site) -> None:
    first = "import os, subprocess; os.kill(os.getpid(), 0); p = subprocess.Popen(['sleep', '60']); p.kill(); p.wait()"
    bad(site, f"{first}; pid = os.fork(); os._exit(0) if pid == 0 else os.waitpid(pid, 0)")
    leave = os._exit
    assert load("bad").id == "bad"
    assert os._exit is leave


@pytest.mark.full
@pytest.mark.parametrize(
    "command", [["info", "bad"], ["config", "bad"], ["run", "bad", "--env", "CartPole-v1", "--steps", "10"]]
)
@pytest.mark.parametrize(
    ("code", "signal_name", "words"),
    [
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV", "Fatal Python error: Segmentation fault"),
        ("import os; os.abort()", "SIGABRT", "Fatal Python error: Aborted"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL", ""),
    ],
)
def test_a_crash_names_the_plugin(site: Site, command: list[str], code: str, signal_name: str, words: str) -> None:
    """The process cannot be saved then. It prints where it was, except after SIGKILL, which the shell names."""
    bad(site, code)
    environment = {**os.environ, "PYTHONPATH": str(site.folder)}
    done = subprocess.run(
        [sys.executable, "-m", "rlsdk", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == -signal.Signals[signal_name]
    assert done.stderr.startswith(words)
    assert not words or "acme_bad" in done.stderr


LIBRARY = """
import sys
sys.path.insert(0, sys.argv[1])
import warnings
warnings.simplefilter("ignore")
from rlsdk.registry import load
assert "torch" not in sys.modules and "numpy" not in sys.modules
load("bad")
import numpy, torch
print(torch.get_default_dtype(), torch.is_grad_enabled(), torch.initial_seed() == 7, numpy.geterr()["over"],
      numpy.random.get_state()[1][0] == numpy.random.RandomState(7).get_state()[1][0])
"""


@pytest.mark.full
def test_a_library_that_the_plugin_imports_first_is_as_it_was_made(site: Site) -> None:
    first = (
        "import numpy, torch; numpy.random.seed(7); numpy.seterr(over='raise'); torch.manual_seed(7);"
        " torch.set_default_dtype(torch.float64); torch.set_grad_enabled(False)"
    )
    bad(site, first)
    command = [sys.executable, "-c", LIBRARY, str(site.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["torch.float32", "True", "False", "warn", "False"], done.stderr


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("import os; os._exit(0)", "is broken: importing it raised SystemExit: os._exit(0)"),
        ("while True: pass", "is broken: importing it did not end within 1 s"),
        ("import time; time.sleep(600)", "is broken: importing it did not end within 1 s"),
    ],
)
def test_info_names_what_cannot_be_loaded(
    site: Site, cli: Any, monkeypatch: pytest.MonkeyPatch, first: str, words: str
) -> None:
    monkeypatch.setattr(loading, "SECONDS", 1.0)
    bad(site, first)
    code, out, err = cli("info", "bad")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert words in err


@pytest.mark.full
@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("import random; random.seed(1)", "changed Python's random state (put back)"),
        ("import os; os.chdir('/')", "changed the working directory (put back)"),
        ("import os; os.environ['X'] = '1'", "changed environment variables: X (put back)"),
        ("import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()", "started threads"),
    ],
)
def test_info_shows_what_loads_and_names_what_it_did(site: Site, first: str, words: str) -> None:
    bad(site, first)
    done = subprocess.run(
        [sys.executable, "-m", "rlsdk", "info", "bad"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site.folder)},
    )
    assert "hyper-parameters:" in done.stdout
    assert words in done.stderr
    assert done.returncode == 0


SLOW = """
import time
from rlsdk.registry import hookimpl
@hookimpl
def {hook}():
    while True:
        try:
            time.sleep(600)
        except Exception:
            pass
"""
OFFERS = 'id = "bad"\ntitle = "x"\nsummary = "y"\nsdk = ">=0.1"\n{field} = ["{name}"]\n'


@pytest.mark.parametrize(
    ("hook", "field", "name"),
    [("kernels", "kernels", "acme_kernel"), ("reports", "reports", "tally"), ("sinks", "sinks", "tally")],
)
def test_a_hook_that_does_not_return_is_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch, hook: str, field: str, name: str
) -> None:
    monkeypatch.setattr(loading, "SECONDS", 0.5)
    site.add("bad", manifest=OFFERS.format(field=field, name=name), code=SLOW.format(hook=hook))
    plugins(rescan=True)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(PluginError, match=r"acme-bad/bad 1.2.3 is broken: importing it did not end within 0.5 s"):
        loading.extension(field, name)
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


@pytest.mark.full
def test_a_thread_that_an_import_starts_ends_with_the_process(site: Site) -> None:
    bad(site, "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(site.folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_slow_kernels_are_not_replaced_without_a_choice(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch computes other roundings, and results must not depend on how busy a machine is."""
    monkeypatch.setattr(loading, "SECONDS", 0.5)
    manifest = OFFERS.format(field="kernels", name="acme_kernel")
    site.add("bad", manifest=manifest, code=SLOW.format(hook="kernels"))
    plugins(rescan=True)
    with pytest.raises(PluginError, match=r"did not end within 0\.5 s; uninstall it, or set RLSDK_KERNELS=off"):
        loading.offered_kernels()


def test_loading_warns(site: Site) -> None:
    bad(site, "import random; random.seed(1)")
    with pytest.warns(PluginSideEffect, match="Python's random state"):
        assert load("bad").id == "bad"
    assert find("bad").problem is None
    bad(site, "raise RuntimeError('x' * 100_000)", "long")
    with pytest.raises(PluginError) as caught:
        load("long")
    assert len(str(caught.value)) < 1000


def test_torch_without_a_default_device_has_none_afterwards() -> None:
    """If torch had no default device before, it has none afterwards. Even "cpu" would be wrong: it slows every call."""
    before = [(state, state.get()) for state in of_library("torch")]
    torch.set_default_device("meta")
    assert "changed torch's default device (put back)" in [state.restore(value) for state, value in before]
    assert not torch.overrides._get_current_function_mode_stack()
