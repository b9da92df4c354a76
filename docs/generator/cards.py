"""A page for each algorithm: its package's README, its learning curve, its class with all parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

from benchmarks.animations import AGENTS
from benchmarks.curves import RECIPES
from benchmarks.landing import DESCRIPTION
from docs.generator.pages import write_pages
from docs.generator.reference import algorithm_entry, classes_of, public_modules
from docs.generator.signatures import python_value
from rlsdk.registry import AlgorithmSpec
from rlsdk.settings import FieldDoc, describe

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"


def write_cards(folder: Path, readmes: list[Path]) -> None:
    """A page for each package that has a README."""
    write_pages(folder, {f"{short_name(readme)}.md": card(readme) for readme in readmes})


def short_name(readme: Path) -> str:
    """The name of a page: that of the package without `rlsdk-`."""
    return readme.parent.name.removeprefix("rlsdk-")


def card(readme: Path) -> str:
    """The text of a card."""
    name, package = short_name(readme), readme.parent.name.replace("-", "_")
    text = _with_pictures(name, readme)
    # packages whose modules are in the reference are described there
    if (readme.parent / "src" / package / "rlsdk.toml").exists() and package not in public_modules():
        text += f"## Class and constructor\n\n```{{eval-rst}}\n{algorithm_entry(package)}```\n\n"
        agents = [kind for kind in classes_of(package) if isinstance(getattr(kind, "spec", None), AlgorithmSpec)]
        text += "".join(map(parameters, agents))
        if agents:
            text += "Methods of all algorithms, such as `learn` and `predict`: [rlsdk.Agent](../reference/rlsdk.rst).\n"
    return text


def _with_pictures(name: str, readme: Path) -> str:
    """The README, with the agent at work and the learning curve before its first table."""
    source = f"../../{readme.relative_to(ROOT)}"
    lines = readme.read_text(encoding="utf-8").splitlines()
    pictures = animation(name) + curve(name)
    if not pictures:
        return f"```{{include}} {source}\n```\n\n"
    table = next(number for number, line in enumerate(lines) if line.startswith(("## ", "| ")))
    parts = [f"```{{include}} {source}\n:{option}: {table}\n```\n\n" for option in ("end-line", "start-line")]
    return pictures.join(parts)


def animation(name: str) -> str:
    """The moving picture of an algorithm's agent; nothing for a package without algorithm."""
    if name == "ppo":
        path, agent, command, on_white = "halfcheetah.gif", "ppo/HalfCheetah-v5", "rlsdk record", ""
    elif name in AGENTS:
        path, agent = f"agents/{name}.gif", f"{name}/{AGENTS[name]}"
        command, on_white = f"python -m benchmarks.animations {name}", ":class: on-white\n"
    else:
        return ""
    described = f"A moving picture of the agent {agent} in its environment."
    return (
        f"```{{image}} ../images/{path}\n:alt: {described}\n:width: 320px\n{on_white}```\n\n"
        f"The agent `{agent}` of [rlsdk-zoo](zoo.md), recorded with `{command}`.\n\n"
    )


def curve(name: str) -> str:
    """The learning curve of an algorithm, and the command that repeats it. That of TRPO is on the landing page."""
    path, command = f"curves/{name}.svg", f"python -m benchmarks.curves train {name}"
    settings = "Settings are the preset for this environment."
    if name == "trpo":
        path, command, settings, described = "learning_curve.svg", "python -m benchmarks.landing train", "", DESCRIPTION
    elif name in RECIPES and (IMAGES / path).exists():
        found = re.search(r"<dc:description>(.*?)</dc:description>", (IMAGES / path).read_text("utf-8"), re.DOTALL)
        assert found, f"{path} has no description: write it with python -m benchmarks.curves draw {name}"
        described = " ".join(unescape(found[1]).split())
        if recorded := RECIPES[name].recorded:
            settings += f" The agents learn from {recorded[2]} recorded episodes of the agent `{recorded[0]}`."
    else:
        return ""
    text = " ".join(filter(None, (described, settings, f"`{command}` repeats the runs.")))
    return f"```{{image}} ../images/{path}\n:alt: {described}\n:width: 100%\n```\n\n{text}\n\n"


def parameters(kind: type[Any]) -> str:
    """A table of everything that a constructor takes."""
    rows = "".join(_rows(describe(kind.spec.config_type), ""))
    return f"| parameter | type | default | meaning |\n|---|---|---|---|\n{rows}\n"


def _rows(fields: tuple[FieldDoc, ...], before: str) -> Iterator[str]:
    for field in fields:
        default = "required" if field.required else f"`{python_value(field.default)}`"
        unit = f" [{field.unit}]" if field.unit else ""
        source = f" ({field.source})" if field.source else ""
        cells = (f"`{before}{field.name}`", f"`{field.type}`", default, f"{field.help}{unit}{source}")
        if field.children:
            cells = (cells[0], "table", "", field.help)
        escaped = [cell.replace("|", "\\|") for cell in cells]
        yield f"| {' | '.join(escaped)} |\n"
        yield from _rows(field.children, f"{field.name}.")
