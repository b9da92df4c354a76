"""Plugin distributions in a folder on sys.path. No wheels are built, so that one process can try many of them."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlsdk.errors import PluginError
from rlsdk.registry import find, load
from rlsdk.registry.discovery import Plugin, algorithms, plugins
from tests.effort import limited
from tests.throwaway import GOOD, MANIFEST

ENTRY = "[rlsdk.plugins]\n{id} = acme_{id}.plugin\n"
METADATA = "Metadata-Version: 2.1\nName: acme-{id}\nVersion: 1.2.3\n"


class Site:
    """A folder of distributions, first on sys.path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.add("good")

    def add(
        self,
        identity: str,
        *,
        manifest: str | bytes | None = None,
        code: str | None = None,
        version: str = "1.2.3",
        **files: Any,
    ) -> Path:
        """Write a distribution `acme-<identity>`; `entry` and `metadata` replace its entry_points.txt and METADATA.

        It takes the place of one of another `version`.
        """
        for earlier in self.folder.glob(f"acme_{identity}-*.dist-info"):
            shutil.rmtree(earlier)
        info, package = self.folder / f"acme_{identity}-{version}.dist-info", self.folder / f"acme_{identity}"
        contents = {
            info / "entry_points.txt": files.get("entry", ENTRY.format(id=identity)),
            info / "METADATA": files.get("metadata", METADATA.format(id=identity)),
            info / "RECORD": f"acme_{identity}/rlsdk.toml,,\n",
            package / "__init__.py": "",
            package / "rlsdk.toml": MANIFEST.format(id=identity, sdk=">=0.1") if manifest is None else manifest,
            package / "plugin.py": code or GOOD.format(first="", id=identity),
        }
        for path, content in contents.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return package

    def listed(self) -> dict[str, Plugin]:
        """Search for plugins again; return those of this folder by the name of their distribution."""
        names = [p.name for p in self.folder.iterdir()]
        return {
            p.distribution: p
            for p in plugins(rescan=True)
            if f"{p.distribution.replace('-', '_')}-{p.version}.dist-info" in names
        }

    def check(self, *, fast: bool = True) -> Plugin | None:
        """Return the entry of the distribution `bad`; require that it does not affect the working plugin."""
        with limited(10.0 if fast else math.inf):
            found = self.listed()
        assert found["acme-good"].problem is None
        assert find("good").distribution == "acme-good"
        assert "good" in [p.id for p in algorithms()]
        bad = found.get("acme-bad")
        if bad is not None and bad.problem is not None:
            assert bad.problem.isprintable()
            assert len(bad.problem) < 1500
            with pytest.raises(PluginError) as caught:
                load(bad.qualified_id)
            assert len(str(caught.value).splitlines()) == 1
        return bad


@contextmanager
def installed(folder: Path) -> Iterator[Site]:
    """A site whose distributions are installed for this process until the context ends."""
    with on_path(folder):
        yield Site(folder)


@contextmanager
def on_path(folder: Path) -> Iterator[None]:
    """Put a folder of distributions first on sys.path until the context ends."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    plugins(rescan=True)
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if name.startswith("acme_"):
                del sys.modules[name]
        plugins(rescan=True)
