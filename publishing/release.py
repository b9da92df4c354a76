"""Check and build the release that a tag names: `python -m publishing.release rlsdk-tqc-v0.2.0 FOLDER`.

A tag is `NAME-vVERSION`; NAME is a package of this repository. Tag, `__version__` and CHANGELOG must agree, the range of
SDK versions must hold the SDK of this repository, and the README must not install from it any more. Without
FOLDER nothing is built.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from publishing.packages import ROOT, Package, packages
from publishing.wheels import environments

TAG = re.compile(r"(?P<name>[a-z][a-z0-9-]*?)-v(?P<version>\d.*)")
BEFORE_PUBLISHING = "nothing is published yet"
"""Words in install lines that a first release makes untrue."""


class ReleaseError(Exception):
    """What must be changed before this tag can be released, a line each."""


def package_of(tag: str, known: list[Package]) -> tuple[Package, str]:
    """The package and the version that a tag names.

    Raises:
        ReleaseError: the tag has another form, or names no package.
    """
    found = TAG.fullmatch(tag)
    named = [package for package in known if found and package.name == found["name"]]
    if found is None or not named:
        names = ", ".join(package.name for package in known)
        raise ReleaseError(f"the tag {tag!r} must be NAME-vVERSION, such as rlsdk-tqc-v0.2.0; names are {names}")
    return named[0], found["version"]


def problems(package: Package, version: str, core: Package) -> Iterator[str]:
    """What is wrong with releasing `package` as `version`, one line per problem."""
    yield from _version_problems(package, version)
    yield from _changelog_problems(package, version)
    if package.name != core.name:
        yield from _range_problems(package, core)
    readme = package.folder / "README.md"
    if BEFORE_PUBLISHING in readme.read_text(encoding="utf-8").lower():
        yield f"{_place(readme)} has {BEFORE_PUBLISHING!r}; write: pip install {package.name}"


def _version_problems(package: Package, version: str) -> Iterator[str]:
    try:
        normal = str(Version(version))
    except InvalidVersion:
        yield f"{version!r} in the tag is not a version, such as 0.2.0 or 0.2.0rc1"
        return
    if normal != version:
        yield f"the tag has {version!r}, which package indexes write {normal!r}; use that"
    if package.version != version:
        yield f"the tag has {version}, but __version__ of {package.name} is {package.version}; change one of them"


def _changelog_problems(package: Package, version: str) -> Iterator[str]:
    text = package.changelog.read_text(encoding="utf-8")
    heading = f"## {version} (YYYY-MM-DD)"
    section = re.search(
        rf"^## {re.escape(version)}(?: \(([^)\n]*)\))?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    place = _place(package.changelog)
    if section is None:
        yield f"{place} has no section {heading!r}; describe the release there"
        return
    try:
        day = date.fromisoformat(section[1] or "")
    except ValueError:
        yield f"{place}: the section of {version} has {section[1] or 'nothing'!r} for a date; write {heading!r}"
    else:
        if day > date.today():
            yield f"{place}: {version} has a date in the future, {day}"
    if not section[2].strip():
        yield f"{place}: the section of {version} is empty; describe the release there"


def _range_problems(package: Package, core: Package) -> Iterator[str]:
    stated = [Requirement(text) for text in package.project.get("dependencies", [])]
    ranges = [requirement.specifier for requirement in stated if requirement.name == core.name]
    if not ranges:
        yield f"{_place(package.folder / 'pyproject.toml')} depends on no range of {core.name}"
    for each in ranges:
        if not each.contains(core.version, prereleases=True):
            yield f"{package.name} needs {core.name} {each}; this repository has {core.version}, which its tests ran on"
        for manifest in sorted(package.folder.glob("src/*/rlsdk.toml")):
            other = tomllib.loads(manifest.read_text(encoding="utf-8")).get("sdk", "")
            if SpecifierSet(other) != each:
                yield f"{_place(manifest)} has sdk = {other!r}, pyproject.toml {core.name}{each}; make them equal"


def _place(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def check(tag: str, root: Path = ROOT) -> Package:
    """The package that `tag` releases.

    Raises:
        ReleaseError: something does not agree.
    """
    known = packages(root)
    package, version = package_of(tag, known)
    if found := list(problems(package, version, known[0])):
        raise ReleaseError("\n".join(found))
    return package


def main(tag: str, folder: Path | None) -> None:
    """Check the release, then build its wheels and its source archive into `folder`."""
    try:
        package = check(tag)
    except ReleaseError as error:
        raise SystemExit(f"{tag} cannot be released:\n{error}") from None
    print(f"{tag}: tag, version, CHANGELOG and range of the SDK agree")
    if folder is not None:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(package.folder)]
        for environment in environments(package.folder):
            if failed := subprocess.run(command, check=False, env=environment).returncode:
                raise SystemExit(failed)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        raise SystemExit("usage: python -m publishing.release TAG [FOLDER]")
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) == 3 else None)
