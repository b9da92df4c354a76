"""Packages and modules that messages and settings name: pip commands, and modules of users.

Until this project's packages are published, anyone may register their names on the public index. So a copy that came from a
folder names that folder. Every message that names a pip command calls `pip_install`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

from rlsdk.errors import OURS, SettingsError, shown

SDK = "rlsdk"
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[^\]]*\])?(?P<version>.*)", re.DOTALL)
_QUOTED = re.compile(r"[\w ./:@%+,=<>~\[\]()*';^-]+")
"""Text that POSIX shells and the command line of Windows leave unchanged inside double quotes."""


def pip_install(*requirements: str, options: str = "") -> str:
    """Return the command that installs packages, for a message. It can be copied into a shell.

    A package that was installed from a folder or a wheel file is named by its path, and so are the packages beside it. If a
    requirement has a version, the text begins with bringing the folder to it. Reads files, so call it only for a message.

    Args:
        requirements: names as pip takes them, such as "rlsdk-tqc", "rlsdk[plot]" or "rlsdk>=0.2".
        options: options of pip, such as "--upgrade".
    """
    requirements = (*requirements, *_missing(requirements))
    first, words = list[str](), ["pip install", *([options] if options else [])]
    parts = [_split(requirement) for requirement in requirements]
    places = [_origin_of(name) for name, _, _ in parts]
    for requirement, (name, extras, version), (place, editable) in zip(requirements, parts, places, strict=True):
        if place is None:
            words.append(_quoted(requirement))
            continue
        path = _shortest(place)
        if version:
            first.append(f"bring {_quoted(path)} to {name}{version}")
        words += [*(["-e"] if editable else []), _quoted(path + extras)]
    if (
        _sdk_source() is None
        and all(name.startswith(f"{SDK}-") for name, _, _ in parts)
        and not any(p for p, _ in places)
    ):
        # from a repository elsewhere, or from a folder that is gone
        address = _origin_record(SDK).get("url")
        if address:
            return f"in a copy of {address}: pip install {' '.join(f'./*/{_quoted(name + more)}' for name, more, _ in parts)}"
    return (f"{' and '.join(first)}, then: " if first else "") + " ".join(words)


def _split(requirement: str) -> tuple[str, str, str]:
    """Return the name, the extras in brackets and the version of a requirement."""
    match = _REQUIREMENT.fullmatch(requirement)
    return (requirement, "", "") if match is None else (match["name"], match["extras"] or "", match["version"])


def _missing(requirements: tuple[str, ...]) -> list[str]:
    """Return the packages of this project that the given ones need and that are not installed, where all come from folders.

    pip would look for them on an index, where anyone may register their names.
    """
    found = dict[str, None]()
    for name, _, _ in map(_split, requirements):
        place, _ = _origin_of(name)
        for line in [] if place is None or name == SDK else _needs(place, "dependencies"):
            needed, extras, _ = _split(line)
            # `rlsdk[fast,sb3]` stands for the packages of these extras
            own = extras.strip("[]").split(",") if needed == SDK else []
            lines = [line, *(each for extra in own for each in _needs(_sdk_source() or OURS.parent, extra.strip()))]
            found |= dict.fromkeys(each for each, _, _ in map(_split, lines) if each.startswith(f"{SDK}-"))
    return [name for name in found if name not in requirements and not _is_installed(name) and _origin_of(name)[0]]


def _needs(folder: Path, field: str) -> list[str]:
    """Return the dependencies in a folder's pyproject.toml, or those of an extra; empty if there are none."""
    try:
        table = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    project = _table(table.get("project"))
    lines = project.get(field) or _table(project.get("optional-dependencies")).get(field)
    return [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []


def _table(value: object) -> dict[str, object]:
    """The value, if it is a table; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _quoted(text: str) -> str:
    if shlex.quote(text) == text:
        return text
    return f'"{text}"' if _QUOTED.fullmatch(text) else shlex.quote(text)


def _shortest(place: Path) -> str:
    """Return the path of a folder or file, relative to the working directory if it lies in it; pip needs the `./`."""
    try:
        inside = place.relative_to(Path.cwd()).as_posix()
    except (OSError, ValueError):
        # the working directory was removed, or is elsewhere
        return place.as_posix()
    return f"./{inside}" if inside != "." else "."


def _origin_of(name: str) -> tuple[Path | None, bool]:
    """Return (folder or wheel file to install a package from, whether it is installed editable); (None, False): there is none.

    It is where the package itself came from, or the package of that name beside the source of rlsdk.
    """
    if name == SDK and _is_source(OURS.parent):
        return OURS.parent, True
    own, editable = _origin(name)
    if own is not None:
        return own, editable
    root = _sdk_source()
    if root is None or name == SDK:
        return None, False
    if root.is_dir():
        beside = [each.parent for each in root.glob("*/*/pyproject.toml") if each.parent.name == name]
    else:
        beside = [each for each in root.parent.glob("*.whl") if each.name.startswith(f"{name.replace('-', '_')}-")]
    return (min(beside), False) if beside else (None, False)


def _sdk_source() -> Path | None:
    """Return the repository or wheel file that the running rlsdk came from; None: it is not on this machine."""
    return OURS.parent if _is_source(OURS.parent) else _origin(SDK)[0]


def _is_source(folder: Path) -> bool:
    """Return whether a folder is the root of this project's repository."""
    return (folder / "pyproject.toml").is_file() and (folder / "plugins").is_dir()


def _origin_record(name: str) -> dict[str, object]:
    """Return what pip noted about the origin of an installed package (PEP 610); empty if it came from an index."""
    try:
        found = json.loads(distribution(name).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError, RecursionError):
        return {}
    return _table(found)


def _origin(name: str) -> tuple[Path | None, bool]:
    record = _origin_record(name)
    # 10 ms, which a listing does not need
    from urllib.request import url2pathname

    address = urlsplit(str(record.get("url", "")))
    place = Path(url2pathname(address.path))
    if address.scheme != "file" or not address.path or not place.exists():
        return None, False
    details = record.get("dir_info")
    return place, isinstance(details, dict) and details.get("editable") is True


SUFFIX = ".py"


def named_module(place: str) -> ModuleType:
    """Import the module with the dotted name `place`, or the one in the file `place`, which ends in `.py`.

    A module in the working directory is found, and is preferred to an installed one of that name, as with `python -m`. The
    directory is only searched here, for a module that the user named: code in a downloaded folder must not take the place of a
    package that rlsdk itself imports. It then stays in `sys.path`, which `multiprocessing` hands on to its processes.

    Raises:
        SettingsError: there is no such file, or another module has its name.
        Exception: any exception that the module raises.
    """
    if place.endswith(SUFFIX):
        return _import_file(Path(place).resolve())
    here, top = os.getcwd(), place.partition(".")[0]
    # `safe_path` is Python's option -P, with which users ask that this folder is not searched.
    if top not in sys.modules and here not in sys.path and not sys.flags.safe_path and _is_in(here, top):
        sys.path.insert(0, here)
    return import_module(place)


def _is_in(folder: str, top: str) -> bool:
    found = PathFinder.find_spec(top, [folder])
    # a folder without __init__.py, such as one called `numpy`, does not take the place of an installed package
    return found is not None and (found.loader is not None or find_spec(top) is None)


def _import_file(file: Path) -> ModuleType:
    """Import a file under its own name, so that other processes can import what is defined in it."""
    name = file.stem
    # A second import would run the file again and make other classes of the same names.
    known = sys.modules.get(name)
    if known is not None and _is_of(known, file):
        return known
    if not file.is_file():
        raise SettingsError(
            f"there is no file {shown(str(file))}; give the path of a Python file, as in ./my_env.py:MyEnv"
        )
    if not name.isidentifier() or known is not None or _is_taken(name, file):
        why = "is not a name of a module" if not name.isidentifier() else "is also the name of another module"
        raise SettingsError(f"{shown(str(file))} cannot be imported: {name!r} {why}; rename the file")
    folder = str(file.parent)
    # At the end: files in that folder must not take the place of installed modules.
    if folder not in sys.path:
        # other processes, and modules beside it
        sys.path.append(folder)
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Before it runs: dataclasses and pickle look up the module of a class by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    # Ctrl-C must not leave half a module behind either.
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_of(module: ModuleType, file: Path) -> bool:
    return (path := getattr(module, "__file__", None)) is not None and Path(path).resolve() == file


def _is_taken(name: str, file: Path) -> bool:
    """Whether a process that imports `name` would get another module."""
    found = find_spec(name)
    return found is not None and found.origin is not None and Path(found.origin).resolve() != file
