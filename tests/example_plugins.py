"""Install the packages of examples/third_party as plugins for this process, without building wheels."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.plugin_site import on_path

THIRD_PARTY = Path(__file__).parents[1] / "examples" / "third_party"


@contextmanager
def installed_examples(folder: Path) -> Iterator[None]:
    """Copy every example and its metadata into `folder`, and put that on sys.path until the context ends."""
    for pyproject in sorted(THIRD_PARTY.glob("*/pyproject.toml")):
        install(pyproject, folder)
    with on_path(folder):
        yield


def install(pyproject: Path, folder: Path) -> None:
    """Copy the package of a `pyproject.toml` and its metadata into `folder`."""
    project = tomllib.loads(pyproject.read_text())["project"]
    (source,) = (pyproject.parent / "src").iterdir()
    version = project.get("version", "0.1.0")
    shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / f"{project['name'].replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    entries = project["entry-points"]["rlsdk.plugins"]
    lines = "".join(f"{name} = {place}\n" for name, place in entries.items())
    (info / "entry_points.txt").write_text(f"[rlsdk.plugins]\n{lines}")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{source.name}/rlsdk.toml,,\n")
