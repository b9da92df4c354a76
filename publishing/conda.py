"""Conda recipes, generated from pyproject.toml: `python -m publishing.conda` writes that of the core, NAME prints another's."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from ruamel.yaml import YAML

from publishing.packages import ROOT, Package, packages
from publishing.wheels import COMPILED, compiles

RECIPE = ROOT / "conda" / "meta.yaml"
NAMES = {"torch": "pytorch"}
"""Name in package indexes of Python -> name in conda's channels, where they differ."""
HEADER = "# Generated from pyproject.toml: python -m publishing.conda\n"


def requirements(texts: Iterable[str]) -> Iterator[str]:
    """Requirements as conda writes them. Conda has no extras, so `rlsdk[fast]` becomes the packages that it brings."""
    core = packages()[0].project
    for text in texts:
        parsed = Requirement(text)
        brought = [name for extra in parsed.extras for name in core["optional-dependencies"].get(extra, ())]
        if parsed.name == core["name"] and brought:
            parsed.extras = set()
        yield from map(requirement, (str(parsed), *brought))


def requirement(text: str) -> str:
    """A requirement as conda writes it: `gymnasium >=1.1,<2`.

    Raises:
        ValueError: it has extras or a marker, which conda has not.
    """
    parsed = Requirement(text)
    if parsed.extras or parsed.marker:
        raise ValueError(
            f"{text!r} has extras or a marker: a conda recipe cannot state them; name the packages themselves"
        )
    return " ".join(filter(None, (NAMES.get(parsed.name, parsed.name), _bounds(parsed.specifier))))


def _bounds(specifier: SpecifierSet) -> str:
    """Lower bounds first."""
    return ",".join(sorted(map(str, specifier), key=lambda bound: (bound[0] != ">", bound)))


def recipe(package: Package, folder: Path) -> dict[str, Any]:
    """The recipe of a package, for a meta.yaml in `folder`."""
    project = package.project
    python = f"python {_bounds(SpecifierSet(project['requires-python']))}"
    build: dict[str, Any] = {
        "noarch": "python",
        "number": 0,
        "script": "{{ PYTHON }} -m pip install . --no-deps --no-build-isolation -vv",
    }
    if compiles(package.folder):
        build["script_env"] = [f"{COMPILED}=off"]  # a package for all kinds of machines
    test: dict[str, Any] = {"imports": [package.name.replace("-", "_")]}
    if scripts := project.get("scripts"):
        build["entry_points"] = [f"{name} = {place}" for name, place in scripts.items()]
        test["commands"] = [f"{name} --help" for name in scripts]
    return {
        "package": {"name": package.name, "version": package.version},
        "source": {"path": Path(os.path.relpath(package.folder, folder)).as_posix()},
        "build": build,
        "requirements": {
            "host": [python, "pip", requirement("hatchling>=1.26")],
            "run": [python, *requirements(project["dependencies"])],
        },
        "test": test,
        "about": {
            "summary": project["description"],
            "license": project["license"],
            "license_file": project["license-files"],
        },
    }


def written(package: Package, folder: Path) -> str:
    """The text of the recipe."""
    yaml, text = YAML(typ="safe", pure=True), io.StringIO()
    yaml.default_flow_style, yaml.width, yaml.sort_base_mapping_type_on_output = False, 200, False  # type: ignore[assignment]
    yaml.dump(recipe(package, folder), text)
    return HEADER + text.getvalue()


def main(name: str | None) -> None:
    """Write the core's recipe, or print the one of the package `name`."""
    known = {package.name: package for package in packages()}
    if name is None:
        RECIPE.parent.mkdir(exist_ok=True)
        RECIPE.write_text(written(known["rlsdk"], RECIPE.parent), encoding="utf-8")
    elif name in known:
        print(written(known[name], ROOT / "conda" / name), end="")
    else:
        raise SystemExit(f"no package {name!r} here; there are {', '.join(known)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
