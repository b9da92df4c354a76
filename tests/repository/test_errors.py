"""Every public error has an example in docs/errors.md, and its message names the fix."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from pathlib import Path

import pytest

from rlsdk import errors
from rlsdk.registry import unregister

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_each_class_has_an_example_whose_message_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    sections = dict(SECTION.findall(text))
    classes = {name for name, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__}
    assert set(sections) == classes - {"RlsdkError"}
    names: dict[str, object] = {}
    first = CODE.search(text)
    assert first is not None
    exec(compile(first[1], str(PAGE), "exec"), names)
    try:
        for name, section in sections.items():
            code, remedy = CODE.search(section), re.search(r"^It names: `(.*)`$", section, re.MULTILINE)
            assert code is not None, name
            assert remedy is not None, name
            assert f"except {name} as error" in code[1]
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code[1], f"{PAGE}: {name}", "exec"), names)
            assert remedy[1] in printed.getvalue(), f"{name}: {printed.getvalue()!r}"
    finally:
        unregister("half-done")


def test_every_error_is_ours_and_what_python_would_raise() -> None:
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if kind.__module__ == errors.__name__ and name not in ("RlsdkError", "PluginError"):
            assert issubclass(kind, errors.RlsdkError)
            assert len(kind.__bases__) == 2 or issubclass(kind, errors.SettingsError), name
