"""A plugin package from templates.

Templates are the files of `templates/common` and of the family's folder, which come last and replace those of the same name.
`$name` stands where a fact belongs; in a path `PACKAGE` is the name of the Python package, `PRESET` that of an environment.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from rlsdk.errors import ArtifactError, SettingsError, shown
from rlsdk.registry import plugins
from rlsdk.scaffold.families import FamilyTemplate, family_template

IDENTITY = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
SDK, OLDEST = ">=0.1,<0.2", "0.1.0"
"""What a new package claims, and the oldest release of that range."""
SUFFIX = ".tmpl"
IMPORT = re.compile(r"^(?:from \S+ )?import (.+)$", re.MULTILINE)
MAX_ID = 64
"""Characters of an id; file systems and indexes of packages have limits too."""
TO_FILL_IN = "FILL IN:"


def new_package(identity: str, family: str, folder: Path, *, actions: str | None = None) -> Path:
    """Write the package of the algorithm `identity` into a new folder inside `folder`; returns the new folder.

    Args:
        identity: id of the algorithm.
        family: one of `families()`.
        folder: made where it is missing.
        actions: `continuous` or `discrete`, for a family with a choice; None: discrete.

    Raises:
        SettingsError: no such family or actions, an id that cannot be one, or one that is taken.
        ArtifactError: the folder exists, or cannot be written; nothing is left half written.
    """
    package = rendered(identity, family, actions)
    _require_free(identity)
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
    return target


def first_steps(identity: str, family: str, actions: str | None = None) -> tuple[str, str]:
    """(the file with the two functions to fill in, relative to the package's folder; a command that trains the package).

    Raises:
        SettingsError: as `rendered`.
    """
    place = next(place for place, text in rendered(identity, family, actions).items() if TO_FILL_IN in text)
    return place, _placeholders(identity, family_template(family, actions))["run"]


def rendered(identity: str, family: str, actions: str | None = None) -> dict[str, str]:
    """Path inside the package -> text, of every file of the package for an algorithm; nothing is written.

    Raises:
        SettingsError: no such family or actions, or an id that cannot be one.
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
    """In camel case. Neither it nor the names made of it are keywords, built-in, or imported by the package."""
    name = "".join(word.capitalize() for word in identity.split("-"))
    taken = {*keyword.kwlist, *dir(builtins), *_imported(template)}
    chosen = (f"{name}{suffix}" for suffix in ("", "Agent", "Algorithm", "Plugin"))
    return next(cls for cls in chosen if not taken & {cls, f"{cls}Config"})


def _imported(template: FamilyTemplate) -> Iterator[str]:
    """Names that the modules of the family import."""
    for folder in _folders(template):
        for _, file in _files(folder):
            for line in IMPORT.findall(file.read_text(encoding="utf-8")):
                yield from re.findall(r"\w+", line)


def _folders(template: FamilyTemplate) -> tuple[Traversable, Traversable]:
    return files("rlsdk.scaffold") / "templates" / "common", template.folder


def _placeholders(identity: str, template: FamilyTemplate) -> dict[str, str]:
    names = {
        "id": identity,
        "cls": _class_name(identity, template),
        "title": " ".join(identity.split("-")).capitalize(),
        "distribution": _distribution(identity),
        "package": f"rlsdk_{identity.replace('-', '_')}",
        "sdk": SDK,
        "oldest": OLDEST,
    }
    return names | {key: Template(text).substitute(names) for key, text in _placeholders_of(template.contents)}


def _placeholders_of(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The entries of a `family.toml` as text; those of its tables with the table's name before theirs. A list appears three
    times: `name` for people, `name_list` in TOML, `name_tuple` in Python."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _placeholders_of(value, f"{prefix}{key}_")
        elif isinstance(value, list):
            yield prefix + key, ", ".join(value)
            yield f"{prefix}{key}_list", json.dumps(value)
            yield f"{prefix}{key}_tuple", f"({', '.join(map(json.dumps, value))}{',' if len(value) == 1 else ''})"
        else:
            yield prefix + key, str(value).strip("\n")


def _require_free(identity: str) -> None:
    if any(plugin.id == identity for plugin in plugins()):
        raise SettingsError(f"an algorithm {identity!r} is installed already, see `rlsdk list`; choose another id")


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
