"""The public names and their parameters equal a reviewed snapshot; a change needs a line in CHANGELOG.md.

python -m tests.repository.test_public_api "line of CHANGELOG.md about the change"     writes a new snapshot
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import attrs
import pytest

from rlsdk.registry import Manifest, discovery, hooks
from rlsdk.storage import archive

ROOT = Path(__file__).parents[2]
SNAPSHOT, CHANGELOG = ROOT / "tests" / "public_api.json", ROOT / "CHANGELOG.md"
PACKAGES = [
    "rlsdk",
    *(f"rlsdk.{path.parent.name}" for path in sorted((ROOT / "rlsdk").glob("*/__init__.pyi"))),
    *(path.parent.name for path in sorted((ROOT / "plugins").glob("*/src/*/__init__.pyi"))),
    "rlsdk_ars",
    "rlsdk_envs.toy",
]
"""Packages whose public names stand in their `__init__.pyi`; their modules are private."""
MODULES = [
    "rlsdk.errors",
    "rlsdk.executors",
    "rlsdk.records",
    "rlsdk.spaces",
    "rlsdk.tree",
    "rlsdk_lab.statistics",
]
"""Modules whose public names are those in `__all__`; without it, their own names without a leading underscore."""


def described() -> dict[str, Any]:
    """Return the public API: names, hooks, fields of manifests, and the version of the file format."""
    names: dict[str, Any] = {}
    for package in PACKAGES:
        module = import_module(package)
        names[package] = {name: _kind(getattr(module, name)) for name in sorted(module.__all__)}
    for place in MODULES:
        module = import_module(place)
        own = {name: value for name, value in vars(module).items() if _is_public(module, name)}
        others = [name for name in _assigned(module) if name not in own]
        kinds = {name: type(getattr(module, name)).__name__ for name in others}
        named = {name: kind for name, kind in kinds.items() if kind not in ("TypeVar", "ParamSpec")}
        names[place] = {**{name: _kind(value) for name, value in sorted(own.items())}, **named}
    specs = {n: v for n, v in vars(hooks).items() if hasattr(v, f"{hooks.PROJECT}_spec")}
    return {
        "names": names,
        "entry point group": discovery.GROUP,
        "hooks": {name: _signature(value) for name, value in sorted(specs.items())},
        "manifest": sorted(field.name for field in attrs.fields(Manifest)),
        "file format": archive.FORMAT,
    }


def _is_public(module: Any, name: str) -> bool:
    """Whether the name is public: the module defines it, or lists it in `__all__`. Type variables are not."""
    if isinstance(getattr(module, name), TypeVar | ParamSpec):
        return False
    if hasattr(module, "__all__"):
        return name in module.__all__
    return not name.startswith("_") and getattr(getattr(module, name), "__module__", "") == module.__name__


def _assigned(module: Any) -> list[str]:
    """The public names that a module assigns at its top level: constants and type aliases."""
    found = list[ast.expr]()
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.Assign):
            found += statement.targets
        elif isinstance(statement, ast.AnnAssign):
            found.append(statement.target)
    names = {each.id for each in found if isinstance(each, ast.Name) and not each.id.startswith("_")}
    return sorted(names & set(getattr(module, "__all__", names)))


def _kind(value: Any) -> Any:
    if inspect.isclass(value):
        members = {
            n: getattr(v, "declared", v) for n, v in vars(value).items()
        }  # of optional members: what they declare
        methods = {n: v for n, v in members.items() if not n.startswith("_") and _is_callable(v)}
        signatures = {n: _signature(v.__func__ if hasattr(v, "__func__") else v) for n, v in sorted(methods.items())}
        return {"class": _signature(value), **signatures}
    return _signature(value) if callable(value) else type(value).__name__


def _is_callable(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)


def _signature(value: Any) -> str:
    """The parameters of a callable by name, with `?` after those with a default. mypy checks annotations."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return type(value).__name__
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    words, starred = [], False
    for parameter in parameters:
        starred = starred or parameter.kind is inspect.Parameter.VAR_POSITIONAL
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        default = "" if parameter.default is inspect.Parameter.empty else "?"
        words.append(f"{marks.get(parameter.kind, '')}{parameter.name}{default}")
    return f"({', '.join(words)})"


def test_the_public_api_is_the_reviewed_one() -> None:
    stored = json.loads(SNAPSHOT.read_text())
    assert stored["because"] in CHANGELOG.read_text(), "the snapshot names a line that CHANGELOG.md does not have"
    assert described() == stored["api"], (
        'changed: add a line to CHANGELOG.md, then: python -m tests.repository.test_public_api "LINE"'
    )


def test_every_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = json.loads(SNAPSHOT.read_text())["api"]
    monkeypatch.setattr(import_module("rlsdk.tree"), "leaves", lambda value, more: value)
    assert described() != stored
    monkeypatch.undo()
    monkeypatch.delattr(import_module("rlsdk.agent.agent").Agent, "predict")
    assert described() != stored


def test_importing_everything_public_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        for place in (*PACKAGES, *MODULES):
            import_module(place)


def main(line: str) -> None:
    """Write the snapshot; `line` is the line of CHANGELOG.md about the change."""
    if not re.search(rf"^.*{re.escape(line)}.*$", CHANGELOG.read_text(), re.MULTILINE) or len(line) < 20:
        raise SystemExit(f"CHANGELOG.md has no line with {line!r}")
    SNAPSHOT.write_text(json.dumps({"because": line, "api": described()}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])


@pytest.mark.parametrize("package", [package for package in PACKAGES if package != "rlsdk_envs.toy"])
def test_no_public_name_is_that_of_a_module(package: str) -> None:
    """Importing the module `package.name` would put the module in place of the public object of this name."""
    module = import_module(package)
    folder = Path(str(module.__file__)).parent
    assert not {path.stem for path in folder.glob("*.py")} & set(module.__all__)
