"""Settings of the whole suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from rlsdk.cli.main import main
from tests.plugin_site import Site, installed

settings.register_profile("suite", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("suite")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs `rlsdk ...` in an empty folder; returns (exit code, standard output, standard error)."""
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


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A folder for distributions of plugins, one of which is good."""
    with installed(tmp_path) as found:
        yield found
