"""Copies of the sources in which bugs are planted, and the packages that processes import from them."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.planted.bug import Bug

ROOT = Path(__file__).parents[2]
SCAFFOLDS: dict[str, tuple[str, str | None]] = {
    "planted-on-policy": ("on-policy", None),
    "planted-off-policy": ("off-policy", "discrete"),
    "planted-continuous": ("off-policy", "continuous"),
    "planted-offline": ("offline", None),
    "planted-own-loop": ("own-loop", None),
    "planted-population": ("population", None),
}
"""Id of a package that `rlsdk new` makes -> its family, and the kind of its actions."""


class Copy:
    """A copy of this repository's sources in `folder`. The examples' packages and their metadata are in `folder/site`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site"
        self._times = itertools.count(2_000_000_000)
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in listed.splitlines():
            if (
                name.startswith(("rlsdk/", "plugins/", "contrib_algos/", "examples/third_party/"))
                and (ROOT / name).exists()
            ):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self.site.mkdir()
        for project in sorted((folder / "examples/third_party").glob("*/pyproject.toml")):
            install(project.parent, self.site)

    @property
    def paths(self) -> list[str]:
        """The first entries of `sys.path` for a process that looks for bugs."""
        return [str(each) for each in (self.folder, self.site, *sorted(self.folder.glob("*/rlsdk-*/src")))]

    @contextmanager
    def with_bug(self, bug: Bug | None) -> Iterator[None]:
        """Plant the bug in the copy until the context ends. The file gets a new modification time, because Python
        reuses compiled files with the same time."""
        if bug is None:
            yield
            return
        path = self.folder / bug.file
        before, time = path.read_text(), path.stat().st_mtime_ns
        path.write_text(bug.planted_in(before))
        moment = next(self._times)
        os.utime(path, (moment, moment))
        try:
            yield
        finally:
            path.write_text(before)
            os.utime(path, ns=(time, time))


def install(project: Path, site: Path) -> None:
    """Make the package of a project, and its metadata, importable from `site`."""
    own = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    (source,) = (found for found in (project / "src").iterdir() if (found / "__init__.py").exists())
    (site / source.name).symlink_to(source)
    info = site / f"{own['name'].replace('-', '_')}-{own.get('version', '0.1.0')}.dist-info"
    info.mkdir()
    lines = "".join(f"{name} = {place}\n" for name, place in own["entry-points"]["rlsdk.plugins"].items())
    (info / "entry_points.txt").write_text(f"[rlsdk.plugins]\n{lines}")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {own['name']}\nVersion: 0.1.0\n")
    (info / "RECORD").write_text(f"{source.name}/rlsdk.toml,,\n")
