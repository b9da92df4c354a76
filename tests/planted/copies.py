"""Copies of the sources in which bugs are planted, and the packages that a process finds in them."""

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
"""Ids of packages that are made by `rlsdk new`; the family, and the kind of actions, of each."""


class Copy:
    """The sources of this repository in `folder`; the packages of the examples, and their metadata, in `folder/site`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site"
        self._times = itertools.count(2_000_000_000)
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in listed.splitlines():
            if name.startswith(("rlsdk/", "plugins/", "examples/third_party/")) and (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self.site.mkdir()
        for project in sorted((folder / "examples/third_party").glob("*/pyproject.toml")):
            install(project.parent, self.site)

    @property
    def paths(self) -> list[str]:
        """What stands first on `sys.path` of a process that looks for bugs."""
        return [str(each) for each in (self.folder, self.site, *sorted(self.folder.glob("plugins/*/src")))]

    @contextmanager
    def with_bug(self, bug: Bug | None) -> Iterator[None]:
        """The bug is in the copy until the end. Times of files change with it: compiled files are remembered by them."""
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
