"""Installing compiles the kernels if there is a C compiler, and works without one."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hatch_build
import pytest

from rlsdk_kernels import compiled_library

SOURCES = Path(hatch_build.__file__).parent / hatch_build.FOLDER
needs_compiler = pytest.mark.skipif(hatch_build.compiler() is None, reason="there is no C compiler")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that has only the C sources."""
    folder = tmp_path / hatch_build.FOLDER
    folder.mkdir(parents=True)
    for path in [*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]:
        shutil.copy(path, folder)
    return tmp_path


def built(project: Path, version: str = "standard") -> tuple[dict[str, Any], list[str]]:
    """Return (the build data that the hook changed, its warnings)."""
    warnings: list[str] = []
    data: dict[str, Any] = {"artifacts": [], "pure_python": True}
    hook: Any = hatch_build.CompiledKernels
    hook(str(project), {}, None, None, "", "wheel", SimpleNamespace(display_warning=warnings.append)).initialize(
        version, data
    )
    return data, warnings


@pytest.mark.parametrize("command", ["cc", "gcc", "clang"])
@pytest.mark.full
def test_a_wheel_contains_a_library_for_every_kind_of_processor(
    command: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}")
    monkeypatch.setenv("CC", command)
    data, warnings = built(project)
    assert not warnings
    libraries = sorted((project / hatch_build.FOLDER).glob("*.so"))
    assert sorted(data["artifacts"]) == [f"/{path.relative_to(project).as_posix()}" for path in libraries]
    assert not data["pure_python"]
    assert data["tag"].startswith("py3-none-")
    found = compiled_library.library_file(project / hatch_build.FOLDER)
    assert found is not None
    assert compiled_library.load(found) is not None
    assert not list((project / hatch_build.FOLDER).glob("*.so.*"))


@needs_compiler
@pytest.mark.full
def test_an_editable_installation_keeps_its_tag(project: Path) -> None:
    data, _ = built(project, "editable")
    assert data == {"artifacts": [], "pure_python": True}
    assert (project / hatch_build.FOLDER / "kernels-default.so").exists()


def test_without_a_compiler(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert built(project) == ({"artifacts": [], "pure_python": True}, [])
    monkeypatch.delenv("CC")
    monkeypatch.setenv(hatch_build.VARIABLE, "off")
    assert built(project) == ({"artifacts": [], "pure_python": True}, [])
    assert compiled_library.library_file(project / hatch_build.FOLDER) is None


@needs_compiler
def test_a_compiler_that_fails_leaves_a_warning_and_no_file(project: Path) -> None:
    (project / hatch_build.FOLDER / "version.c").write_text("this is not C;")
    data, (warning,) = built(project)
    assert data == {"artifacts": [], "pure_python": True}
    assert warning.startswith("rlsdk-kernels is installed without compiled code: ")
    assert "version.c" in warning
    assert not list((project / hatch_build.FOLDER).glob("*.so*"))


def test_the_tag_names_the_oldest_c_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    library = tmp_path / "a.so"
    for content, expected in (
        (b"GLIBC_2.2.5 GLIBC_2.27", "manylinux_2_28_x86_64"),
        (b"GLIBC_2.2.5 GLIBC_2.35", "linux_x86_64"),
        (b"", "manylinux_2_28_x86_64"),
    ):
        library.write_bytes(content)
        assert hatch_build.tag([library]) == f"py3-none-{expected}"
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert hatch_build.tag([library]) == "py3-none-linux_x86_64"
