"""A page for each command of `rlsdk`, from the command line program itself: nothing about an option is written twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer

from docs.generator.pages import write_pages
from rlsdk.cli.main import app

EXAMPLE = "Example: "


def write_commands(folder: Path) -> None:
    """The pages of all commands, and the list that leads to them."""
    found = dict(commands())
    pages = {f"{name.replace(' ', '-')}.md": command_page(name, command) for name, command in found.items()}
    write_pages(folder, {**pages, "index.md": index_page(found)})


def commands() -> Iterator[tuple[str, Any]]:
    """(name without `rlsdk`, command) of every command that is not hidden; those of groups have two words."""
    yield from _below(typer.main.get_command(app), "")


def _below(group: Any, before: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _below(command, f"{before}{name} ")
        elif not command.hidden:
            yield f"{before}{name}", command


def example(command: Any) -> str:
    """The example at the end of a command's help."""
    return (command.epilog or "").removeprefix(EXAMPLE)


def index_page(found: dict[str, Any]) -> str:
    """A line per command; included by the page `command-line`."""
    files = {name: name.replace(" ", "-") for name in found}
    rows = [f"| [`rlsdk {name}`](commands/{files[name]}.md) | {_cell(_summary(c))} |\n" for name, c in found.items()]
    hidden = "\n".join(f"commands/{file}" for file in files.values())
    return f"| command | what it does |\n|---|---|\n{''.join(rows)}\n```{{toctree}}\n:hidden:\n\n{hidden}\n```\n"


def command_page(name: str, command: Any) -> str:
    """What a command does, an example, its arguments and its options."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([f"rlsdk {name}", *(_argument(p) for p in arguments), *(["[OPTIONS]"] if options else [])])
    text = f"# rlsdk {name}\n\n{_text(command.help or '')}\n\n```shell\n{usage}\n```\n\n"
    if example(command):
        text += f"For example:\n\n```shell\n{example(command)}\n```\n\n"
    if arguments:
        rows = "".join(f"| `{_argument(p)}` | {_kind(p)} | {_cell(p.help or '')} |\n" for p in arguments)
        text += f"## Arguments\n\n| argument | type | meaning |\n|---|---|---|\n{rows}\n"
    if options:
        rows = "".join(f"| {_names(p)} | {_kind(p)} | {_default(p)} | {_cell(p.help or '')} |\n" for p in options)
        text += f"## Options\n\n| option | type | default | meaning |\n|---|---|---|---|\n{rows}\n"
    return text + "See also: [the command line](../command-line.md).\n"


def _summary(command: Any) -> str:
    return re.split(r"(?<=\.)\s", " ".join((command.help or "").split()))[0]


def _text(written: str) -> str:
    return "\n\n".join(" ".join(each.split()) for each in written.split("\n\n")).replace("*", "\\*")


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper().strip("[]")
    name = f"{name}..." if parameter.nargs == -1 or parameter.multiple else name
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _kind(parameter: Any) -> str:
    """What a value is: text, a whole number, a number, a path, or nothing for a switch."""
    if getattr(parameter, "is_flag", False):
        return "switch"
    words = {"str": "text", "int": "whole number", "float": "number", "Path": "path", "bool": "switch"}
    found = (*get_args(parameter.type_descriptor.annotation), parameter.type_descriptor.annotation)[0]
    kind = words.get(getattr(found, "__name__", ""), "text")
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if low is not None:
        kind += f" from {low}" + (f" to {high}" if high is not None else "")
    return f"{kind}, repeatable" if parameter.multiple or parameter.nargs == -1 else kind


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    return "" if value is None or value is False or value == "" else f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")
