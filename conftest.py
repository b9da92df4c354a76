"""Settings and fixtures of the whole suite, and which tests each command runs.

`make test` leaves out what is marked `slow` or `full`, `make test-rest` runs what is `full`, `make test-slow` what is `slow`.
A test function is marked by hand if it takes seconds. Here, two rules mark others:

- Of a function with more than `ROWS` parametrizations, those with the highest checksums of their names are `full`.
- Of the contract, the clauses `LONG` are `full`. The clauses `LONGEST` are `full` for the packages in `ALWAYS`, and `slow`
  for the others; `make test-clauses` runs these alone.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in `learn`; threads of parallel tests would wait for each other
if os.environ.get("RLSDK_TEST_GPU") != "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # many tests compare results bit by bit, which holds on the CPU only
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="rlsdk-state-")  # no test writes a key into the user's home

from rlsdk.cli.main import main  # after the settings above, which torch reads when it is imported
from rlsdk.runtime import packages
from rlsdk_kernels import compiled_library
from tests.compiled_variants import RUNNABLE, loaded
from tests.plugin_site import Site, installed

ALWAYS = {"rlsdk-tqc", "rlsdk-ppo"}
"""One with a replay buffer and Box actions, one with rollouts and all actions."""
ROWS = 3
"""Parametrizations of one function that `make test` runs."""
LONGEST = {
    "learns.bandit",
    "learns.sign-of-observation",
    "settings.as-declared",
    "settings.have-effect",
    "settings.live-take-over",
    "settings.schedules-followed",
}
LONG = {
    "agent.save-load-predict",
    "batch.normalized",
    "count.whole-numbers",
    "dose.learning-rate",
    "dose.schedules",
    "dose.weights",
    "formula.reference",
    "learns.entropy",
    "learns.entropy-coefficient",
    "learns.known-values",
    "learns.masked-choice",
    "learns.scaled-rewards",
    "learns.time-limit",
    "learns.two-state-chain",
    "plugin.claims-backed",
    "policy.action-in-space",
    "policy.masks-obeyed",
    "resume.vectors",
    "seeds.draws-are-fresh",
    "training.parameters-move",
}
"""Clauses that take more than 0.3 s of processor time on average."""

settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],  # it depends on the load of the machine
)
settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    """Take files and folders of the code as the names of their tests: `pytest rlsdk/buffers` runs `tests/buffers`."""
    config.args[:] = [path_of_tests(argument) for argument in config.args]


def path_of_tests(argument: str) -> str:
    """The tests of a file or folder of the code; any other argument is returned unchanged."""
    path, inside, test = argument.partition("::")
    first, *others = Path(path).parts or ("",)
    if first == "rlsdk" and others:
        found = Path("tests", *others[:1])
        path = str(found.with_name(f"test_{found.name}") if found.suffix else found)
    elif first in ("rlsdk", "benchmarks", "docs", "examples", "publishing"):
        path = "tests" if first == "rlsdk" else f"tests/{first}"
    elif first in ("plugins", "contrib_algos") and others[1:2] == ["src"]:
        path = f"{first}/{others[0]}/tests"
    return path + inside + test


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out. With `RLSDK_KERNELS=off`, skip tests of kernels; all others pass without them too."""
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        function, _, row = item.name.removesuffix("]").partition("[")
        if row in LONGEST and not ALWAYS & set(item.path.parts):
            item.add_marker(pytest.mark.slow)
        elif function == "test_contract":
            if row in LONGEST | LONG:
                item.add_marker(pytest.mark.full)
        elif row and not item.get_closest_marker("slow"):
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
        for mark in item.iter_markers("kernels") if os.environ.get("RLSDK_KERNELS") == "off" else ():
            item.add_marker(pytest.mark.skip(reason=f"RLSDK_KERNELS=off: {mark.args[0]}"))
    for rows in tables.values():
        for item in sorted(rows, key=lambda item: crc32(item.name.encode()))[ROWS:]:
            item.add_marker(pytest.mark.full)


def pytest_collection_finish() -> None:
    """Leave the collected tests and modules out of later garbage collections: half a million objects that stay."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def from_an_index() -> Iterator[None]:
    """Messages name packages as if rlsdk had been installed from an index; tests run in a copy of the repository."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packages, "_origin_of", lambda name: (None, False))
        patch.setattr(packages, "_origin_record", lambda name: {})
        yield


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A function that runs `rlsdk ...` in an empty folder and returns (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rlsdk", *arguments])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


@pytest.fixture(params=RUNNABLE)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each compiled library that this processor can run takes the place of the fastest one; returns its name."""
    chosen, name = loaded(request.param), str(request.param)
    monkeypatch.setattr(compiled_library, "library", lambda: chosen)
    return name


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A folder for distributions of plugins, with one working plugin, `good`."""
    with installed(tmp_path) as found:
        yield found
