"""Examples, plugins and new packages use only public names of rlsdk: those in the snapshot of the API."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from rlsdk_testing.scaffold import rendered
from rlsdk_testing.scaffold.families import family_templates

ROOT = Path(__file__).parents[2]
NAMES: dict[str, dict[str, object]] = json.loads((ROOT / "tests" / "public_api.json").read_text())["api"]["names"]
"""Module -> its public names."""


OF_OTHERS = {*dir(os), *vars(nn.Module()), *vars(torch.optim.SGD([torch.zeros(1)]))}
"""Attributes that begin with `_` and are not ours: `os._exit` is documented, and torch has no public way to the dictionaries
and hooks of its modules and optimizers."""


@cache
def sources() -> dict[str, str]:
    """Path -> text of every Python file of examples, plugins and contrib_algos, and of every file that `rlsdk new` writes.

    The tests of plugins and contrib_algos use internals, so they are left out. The tests of examples are included.
    """
    found = {
        f"rlsdk new, {template.folder.name}: {name}": text
        for template in family_templates()
        for name, text in rendered("my-algo", template.family, template.for_actions).items()
        if name.endswith(".py")
    }
    for folder in ("examples", "plugins", "contrib_algos"):
        files = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py")]
        shown = [path for path in files if folder == "examples" or "tests" not in path.parts]
        found |= {str(path): (ROOT / path).read_text() for path in shown}
    return found


def not_public(text: str) -> list[str]:
    """Return the uses of names of rlsdk that are not public, and of attributes of other objects that begin with `_`, unless the
    attribute is one of `OF_OTHERS`."""
    parsed = ast.parse(text)
    own = {"self", "cls"} | {node.name for node in ast.walk(parsed) if isinstance(node, ast.ClassDef)}
    return [
        problem
        for node in ast.walk(parsed)
        for problem in (_imports(node) if isinstance(node, ast.Import | ast.ImportFrom) else _attributes(node, own))
    ]


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"import {each.name}" for each in node.names if _is_ours(each.name) and each.name not in NAMES)
    elif _is_ours(module := node.module or ""):
        public = NAMES.get(module, {})
        missing = [n.name for n in node.names if n.name not in public and f"{module}.{n.name}" not in NAMES]
        yield from (f"from {module} import {name}" for name in missing)


def _attributes(node: ast.AST, own: set[str]) -> Iterator[str]:
    if not isinstance(node, ast.Attribute):
        return
    owner = node.value.id if isinstance(node.value, ast.Name) else None
    private = (
        node.attr.startswith("_") and not node.attr.endswith("__") and node.attr not in OF_OTHERS and owner not in own
    )
    unknown = owner == "rlsdk" and node.attr not in NAMES["rlsdk"] and f"rlsdk.{node.attr}" not in NAMES
    if private or unknown:
        yield ast.unparse(node)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "rlsdk"


def test_only_public_names_are_used() -> None:
    places = sources()
    assert len(places) > 400
    assert {place: found for place, text in places.items() if (found := not_public(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from rlsdk.agent.assembled import AssembledAgent",
        "from rlsdk.buffers import _rows",
        "from rlsdk import nothing",
        "def f():\n    from rlsdk.networks.critics import Columns",
        "import rlsdk.agent.assembled",
        "import rlsdk\nrlsdk.agent_classes",
        "import rlsdk\nrlsdk._lazy",
        "agent._assembled.parts",
    ],
)
def test_a_private_name_is_found(text: str) -> None:
    assert not_public(text)


def test_private_names_of_other_libraries_are_allowed() -> None:
    assert not not_public("os._exit(0)\nmodule._parameters\noptimizer._optimizer_step_post_hooks")


def test_every_kind_of_source_is_read() -> None:
    places = " ".join(sources())
    for part in ("rlsdk new", "examples/third_party/dyna/src", "examples/embedding", "plugins/rlsdk-tqc/src"):
        assert part in places
    assert sum("from rlsdk" in text for text in sources().values()) > 100
