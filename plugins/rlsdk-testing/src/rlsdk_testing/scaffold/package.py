"""Writes a plugin package from templates.

The templates are the files in `templates/common` and in the folder of the family. If both have a file of the same name, the
family's is used. `$name` in a template is replaced by a value. In a path, `PACKAGE` is replaced by the name of the Python
package and `PRESET` by the environment id of the preset.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from rlsdk.errors import ArtifactError, SettingsError, shown
from rlsdk.registry import plugins
from rlsdk_testing.scaffold.families import FamilyTemplate, family_template

IDENTITY = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
SDK, OLDEST = ">=0.1,<0.2", "0.1.0"
"""The range of SDK versions that a new package states, and the oldest release in that range."""
SUFFIX = ".tmpl"
IMPORT = re.compile(r"^(?:from \S+ )?import (.+)$", re.MULTILINE)
MAX_ID = 64
"""The largest number of characters of an id. File systems and package indexes have limits too."""
TO_FILL_IN = "FILL IN:"


def new_package(identity: str, family: str, folder: Path, *, actions: str | None = None) -> Path:
    """Write the package of the algorithm `identity` into a new folder inside `folder`, and return the new folder.

    Args:
        identity: the id of the algorithm.
        family: one of `families()`.
        folder: the parent folder; it is created if it does not exist.
        actions: `continuous` or `discrete`, for a family with a choice; None is discrete.

    Raises:
        SettingsError: the family or its kind of actions does not exist, or the id is not valid.
        ArtifactError: the new folder exists already or cannot be written. No incomplete folder is left then.
    """
    package = rendered(identity, family, actions)
    target = folder / _distribution(identity)
    if target.exists():
        raise ArtifactError(f"{target} exists already; remove it, choose another id, or another folder with --out")
    staging: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=folder, prefix=f".{target.name}."))
        for place, text in package.items():
            path = staging / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        staging.chmod(0o755)
        staging.rename(target)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {target}: {error.strerror or error}; choose a writable folder with --out"
        ) from None
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
    _warn_of_namesakes(identity)
    return target


def first_steps(identity: str, family: str, actions: str | None = None) -> tuple[str, str]:
    """Return the file with the two functions to fill in, and a command that trains the new algorithm.

    The file is a path relative to the folder of the package.

    Raises:
        SettingsError: as in `rendered`.
    """
    place = next(place for place, text in rendered(identity, family, actions).items() if TO_FILL_IN in text)
    return place, _placeholders(identity, family_template(family, actions))["run"]


def rendered(identity: str, family: str, actions: str | None = None) -> dict[str, str]:
    """Return path inside the package -> text, for every file of a new package. Nothing is written.

    Raises:
        SettingsError: the family or its kind of actions does not exist, or the id is not valid.
    """
    template = family_template(family, actions)
    if len(identity) > MAX_ID:
        raise SettingsError(
            f"{shown(identity, 40)} has {len(identity)} characters; ids have at most {MAX_ID}: shorten it"
        )
    if not IDENTITY.fullmatch(identity):
        raise SettingsError(
            f"{identity!r} cannot be the id of an algorithm: lower-case words of letters and digits, joined by hyphens,"
            " such as my-algo"
        )
    return dict(_files_of(_placeholders(identity, template), template))


def _distribution(identity: str) -> str:
    return f"rlsdk-{identity}"


def _class_name(identity: str, template: FamilyTemplate) -> str:
    """Return the name of the agent class: the id in camel case, with a suffix if it would hide another name.

    It and the name of its config class are not Python keywords, built-in names or names that the package imports.
    """
    name = "".join(word.capitalize() for word in identity.split("-"))
    taken = {*keyword.kwlist, *dir(builtins), *_imported(template)}
    chosen = (f"{name}{suffix}" for suffix in ("", "Agent", "Algorithm", "Plugin"))
    return next(cls for cls in chosen if not taken & {cls, f"{cls}Config"})


def _imported(template: FamilyTemplate) -> Iterator[str]:
    """Yield the names that the modules of the template import."""
    for folder in _folders(template):
        for _, file in _files(folder):
            for line in IMPORT.findall(file.read_text(encoding="utf-8")):
                yield from re.findall(r"\w+", line)


def _folders(template: FamilyTemplate) -> tuple[Traversable, Traversable]:
    return files("rlsdk_testing.scaffold") / "templates" / "common", template.folder


def _placeholders(identity: str, template: FamilyTemplate) -> dict[str, str]:
    names = {
        "id": identity,
        "cls": _class_name(identity, template),
        "title": " ".join(identity.split("-")).capitalize(),
        "distribution": _distribution(identity),
        "package": f"rlsdk_{identity.replace('-', '_')}",
        "sdk": SDK,
        "oldest": OLDEST,
        "requirements": "".join(f' "{each}",' for each in template.contents.get("requires", ())),
    }
    return names | {key: Template(text).substitute(names) for key, text in _placeholders_of(template.contents)}


def _placeholders_of(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (name, text) for the entries of a `family.toml`. The name of an entry of a table begins with the table's name.

    A list is yielded three times: `name` is separated by commas, `name_list` is a TOML list and `name_tuple` a Python tuple.
    """
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _placeholders_of(value, f"{prefix}{key}_")
        elif isinstance(value, list):
            yield prefix + key, ", ".join(value)
            yield f"{prefix}{key}_list", json.dumps(value)
            yield f"{prefix}{key}_tuple", f"({', '.join(map(json.dumps, value))}{',' if len(value) == 1 else ''})"
        else:
            yield prefix + key, str(value).strip("\n")


def _warn_of_namesakes(identity: str) -> None:
    """Warn if an installed package has the id: writing a folder changes nothing, installing the new package does."""
    for package in sorted({plugin.distribution for plugin in plugins() if plugin.id == identity}):
        same = package == _distribution(identity)
        what = "installing the new package replaces it" if same else f"with both installed, use {package}/{identity}"
        warnings.warn(f"the installed package {package} has an algorithm {identity!r} too; {what}", stacklevel=3)


def _files_of(context: Mapping[str, str], template: FamilyTemplate) -> Iterator[tuple[str, str]]:
    for folder in _folders(template):
        for place, file in _files(folder):
            text = Template(file.read_text(encoding="utf-8")).substitute(context)
            named = place.replace("PACKAGE", context["package"]).replace("PRESET", context["preset_env"])
            yield named.removesuffix(SUFFIX), text


def _files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield prefix + entry.name, entry
