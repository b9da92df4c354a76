"""The reference: everything public, with types and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from docs.generator.pages import heading, write_pages
from rlsdk import Agent
from tests.repository.test_public_api import MODULES, PACKAGES

ROOT = Path(__file__).parents[2]
FURTHER = (
    "rlsdk.agent.prediction",
    "rlsdk.kernels.factory",
    "rlsdk_lab.comparison",
    "rlsdk_lab.plotting",
    "rlsdk.math.surrogate",
)
"""Modules outside the reviewed list whose functions the pages use."""
GROUPS = {
    "Everyday": (
        "rlsdk",
        "rlsdk.agent",
        "rlsdk.environments",
        "rlsdk.callbacks",
        "rlsdk.evaluation",
        "rlsdk.sinks",
        "rlsdk.errors",
        "rlsdk_sb3",
    ),
    "Experiments and files": (
        "rlsdk.runs",
        "rlsdk.cli",
        "rlsdk_lab",
        "rlsdk_interchange",
        "rlsdk_datasets",
        "rlsdk.executors",
        "rlsdk_parallel",
    ),
    "Parts of algorithms": (
        "rlsdk.interfaces",
        "rlsdk.records",
        "rlsdk.spaces",
        "rlsdk.tree",
        "rlsdk.buffers",
        "rlsdk.distributions",
        "rlsdk.exploration",
        "rlsdk.networks",
        "rlsdk.math",
        "rlsdk.settings",
        "rlsdk.registry",
        "rlsdk.training",
        "rlsdk.updates",
        "rlsdk_testing",
    ),
}
"""Heading -> pages; a page that is not named here is under `Further modules`."""


def public_modules() -> list[str]:
    """Every module of the reference: those whose names are reviewed, and `FURTHER`."""
    return sorted({*PACKAGES, *MODULES, *FURTHER})


def packages_of_algorithms() -> list[str]:
    """The import names of the plugins in this repository."""
    return sorted(path.name for path in [*ROOT.glob("*/rlsdk-*/src/rlsdk_*")] if (path / "rlsdk.toml").exists())


def write_reference(folder: Path) -> None:
    """A page for each package directly below `rlsdk` with all its modules, and the list that leads to them."""
    seen: dict[int, str] = {}
    # the shortest path of a name is the one people import it from
    order = sorted(public_modules(), key=lambda name: (name.count("."), name))
    sections = {name: module_section(name, seen) for name in order}
    pages: dict[str, list[str]] = {}
    for name in order:
        pages.setdefault(_page(name), []).append(name)
    texts = {f"{page}.rst": "".join(sections[name] for name in names) for page, names in pages.items()}
    for page, names in pages.items():
        if page not in names:  # a package without public names of its own
            texts[f"{page}.rst"] = heading(page) + texts[f"{page}.rst"]
    write_pages(folder, {**texts, "index.md": index_page(pages)})


def _page(module: str) -> str:
    """The page that has a module: that of its package."""
    return ".".join(module.split(".")[:2])


def index_page(pages: Iterable[str]) -> str:
    """All pages in groups, each with the first sentence of its documentation; included by the page `api`."""
    text, grouped = "", {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "Further modules": tuple(sorted(name for name in pages if name not in grouped))}
    for title, names in groups.items():
        text += f"## {title}\n\n"
        text += "".join(f"- [{name}](reference/{name}.rst): {_first_line(import_module(name))}\n" for name in names)
        text += "\n```{toctree}\n:hidden:\n\n" + "".join(f"reference/{name}\n" for name in names) + "```\n\n"
    return text


def _first_line(module: ModuleType) -> str:
    return " ".join((module.__doc__ or "").partition("\n\n")[0].split())


def module_section(name: str, seen: dict[int, str]) -> str:
    """A module with all its public names; one that came before is a link to it."""
    module = import_module(name)
    line = "-" if name.count(".") > 1 else "="
    text = heading(name, line) + f".. automodule:: {name}\n   :no-members:\n\n"
    links = []
    for member in members(module):
        value = getattr(module, member)
        home = seen.setdefault(id(value), name) if _documented_once(value) else name
        if home == name:
            text += heading(member, "~") + _directive(name, member, value)
        else:
            links.append(f":py:obj:`{member} <{home}.{member}>`")
    return text + (f"Also here: {', '.join(links)}.\n\n" if links else "")


def classes_of(package: str) -> list[type[Any]]:
    """The classes of an algorithm's package."""
    module = import_module(package)
    return [value for name in getattr(module, "__all__", ()) if inspect.isclass(value := getattr(module, name))]


def algorithm_entry(package: str) -> str:
    """The classes of an algorithm with their constructors, as a part of its card."""
    return "".join(_class_entry(package, kind, kind.__name__) for kind in classes_of(package))


def _class_entry(module: str, kind: type[Any], name: str) -> str:
    """A class without the values that rlsdk sets on it: `spec` and `policy_aliases` repeat in one line what the page has."""
    below_agent = issubclass(kind, Agent) and kind is not Agent
    given = sorted(set(vars(kind)) & set(inspect.get_annotations(Agent)) if below_agent else ())
    without = f"   :exclude-members: {', '.join(given)}\n" if given else ""
    return f".. autoclass:: {module}.{name}\n{without}\n"


def members(module: ModuleType) -> Iterator[str]:
    """The public names of a module: its `__all__`, or what it defines."""
    listed = getattr(module, "__all__", None)
    for name in listed if listed is not None else vars(module):
        if name.startswith("_"):
            continue
        value = getattr(module, name)
        if listed is not None or getattr(value, "__module__", "") == module.__name__:
            yield name


def _documented_once(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _directive(module: str, name: str, value: object) -> str:
    if inspect.ismodule(value):
        return ""
    if inspect.isclass(value):
        return _class_entry(module, value, name)
    if hasattr(value, "__metadata__"):  # an option of the command line: its type and its help, not its objects
        kind, (option, *_) = value.__origin__, value.__metadata__
        text = f"`{getattr(kind, '__name__', kind)}`: {option.help}".replace("`", "``")
        return f".. py:data:: {module}.{name}\n\n   {text}\n\n"
    if inspect.isroutine(value):
        return f".. autofunction:: {module}.{name}\n\n"
    plain = isinstance(value, int | float | str) and len(repr(value)) < 60
    return f".. autodata:: {module}.{name}\n" + ("\n" if plain else "   :no-value:\n\n")
