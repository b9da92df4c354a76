"""Modules that a user names: `my_module`, also in the working directory, or a file, `./my_env.py`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from rlsdk.errors import SettingsError, shown

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
        return _from_file(Path(place).resolve())
    here, top = os.getcwd(), place.partition(".")[0]
    if top not in sys.modules and here not in sys.path and not sys.flags.safe_path and _is_in(here, top):
        sys.path.insert(0, here)
    return import_module(place)


def _is_in(folder: str, top: str) -> bool:
    found = PathFinder.find_spec(top, [folder])
    # a folder without __init__.py, such as one called `numpy`, does not take the place of an installed package
    return found is not None and (found.loader is not None or find_spec(top) is None)


def _from_file(file: Path) -> ModuleType:
    """Import a file under its own name, so that other processes can import what is defined in it."""
    name = file.stem
    known = sys.modules.get(name)
    if known is not None and _is_of(known, file):
        return known
    if not file.is_file():
        raise SettingsError(
            f"there is no file {shown(str(file))}; give the path of a Python file, as in ./my_env.py:MyEnv"
        )
    if not name.isidentifier() or known is not None or _taken(name, file):
        why = "is not a name of a module" if not name.isidentifier() else "is also the name of another module"
        raise SettingsError(f"{shown(str(file))} cannot be imported: {name!r} {why}; rename the file")
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # other processes, and modules beside it
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_of(module: ModuleType, file: Path) -> bool:
    return (path := getattr(module, "__file__", None)) is not None and Path(path).resolve() == file


def _taken(name: str, file: Path) -> bool:
    """Whether a process that imports `name` would get another module."""
    found = find_spec(name)
    return found is not None and found.origin is not None and Path(found.origin).resolve() != file
