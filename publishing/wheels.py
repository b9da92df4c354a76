"""Build a wheel of every package and an index of them that pip can read: `python -m publishing.wheels FOLDER`.

The index follows PEP 503: a page of names, and a page of files for each name. Links are relative, so the folder can be
moved, copied or served.
"""

from __future__ import annotations

import hashlib
import html
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from publishing.packages import packages

COMPILED = "RLSDK_COMPILED"
"""The environment variable that `hatch_build.py` reads: with "off", nothing is compiled."""
PAGE = """<!DOCTYPE html>
<html>
<head><meta name="pypi:repository-version" content="1.0"><title>{title}</title></head>
<body>
{links}
</body>
</html>
"""


def build_wheels(sources: Iterable[Path], folder: Path) -> None:
    """Build the wheels of each source tree into `folder`, with the build tools of this environment."""
    for source in sources:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
        for environment in environments(source):
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                raise SystemExit(f"{source} cannot be built:\n{done.stdout}{done.stderr}")


def environments(source: Path) -> list[dict[str, str]]:
    """The environment variables of each build of a source tree.

    A package with compiled code has a wheel for this kind of machine, and one without compiled code for all others.
    """
    own = dict(os.environ)
    return [own, {**own, COMPILED: "off"}] if compiles(source) else [own]


def compiles(source: Path) -> bool:
    """Whether the build of a source tree may compile code."""
    return (source / "hatch_build.py").exists()


def write_index(folder: Path) -> Path:
    """Write `folder/simple`, an index of the wheels in `folder`, and return its place."""
    index = folder / "simple"
    shutil.rmtree(index, ignore_errors=True)
    files: dict[str, list[Path]] = {}
    for wheel in sorted(folder.glob("*.whl")):
        files.setdefault(canonicalize_name(parse_wheel_filename(wheel.name)[0]), []).append(wheel)
    for name, wheels in files.items():
        (index / name).mkdir(parents=True)
        _write_page(index / name, f"Wheels of {name}", map(_link, wheels))
    index.mkdir(exist_ok=True)
    _write_page(index, "Packages", (f'<a href="{name}/">{name}</a><br>' for name in files))
    return index


def _write_page(folder: Path, title: str, links: Iterable[str]) -> None:
    text = PAGE.format(title=html.escape(title), links="\n".join(links))
    (folder / "index.html").write_text(text, encoding="utf-8")


def _link(wheel: Path) -> str:
    """The link to a file, with its hash and the Pythons that it accepts: pip checks both."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pythons = _requires_python(wheel)
    accepted = f' data-requires-python="{html.escape(pythons)}"' if pythons else ""
    return f'<a href="../../{wheel.name}#sha256={digest}"{accepted}>{wheel.name}</a><br>'


def _requires_python(wheel: Path) -> str | None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())["Requires-Python"]


def main(folder: Path) -> None:
    """Replace the wheels and the index in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    found = packages()
    build_wheels((package.folder for package in found), folder)
    index = write_index(folder)
    print(f"wheels of {len(found)} packages in {folder}; install them with")
    print(f'  pip install --extra-index-url "{index.resolve().as_uri()}" {found[0].name} {found[1].name}')


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m publishing.wheels FOLDER")
    main(Path(sys.argv[1]))
