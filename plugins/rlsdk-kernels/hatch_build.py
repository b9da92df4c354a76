"""Compiles the kernels in `src/rlsdk_kernels/compiled` while the package is built or installed, if there is a C compiler.

Without a compiler, or with the environment variable `RLSDK_COMPILED=off`, the package has no compiled kernels and works as
before, only slower. The libraries do not depend on the version of Python.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "RLSDK_COMPILED"
FOLDER = Path("src/rlsdk_kernels/compiled")
FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden"]
# results must not depend on which operations a compiler fuses
FLAGS += ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
X86 = {
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mfma", "-mprefer-vector-width=512"],
    "avx2": ["-mavx2", "-mfma"],
}
"""The capabilities of x86 processors that have their own library, as `torch.backends.cpu.get_cpu_capability` names them, and
the compiler's options. There is one more library, `default`, for all processors."""
OLDEST_GLIBC = (2, 28)
"""Wheels for Linux work with this version of the C library and newer ones, like those of torch."""


def fingerprint(folder: Path) -> str:
    """Return the hash of the C sources in a folder. It is part of the libraries made from them."""
    sources = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def compiler() -> list[str] | None:
    """Return the command of the C compiler, which the variable `CC` may name; None if there is none."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    known = sys.platform.startswith(("linux", "darwin"))
    return command if known and shutil.which(command[0]) else None


def compile_libraries(folder: Path, command: list[str]) -> list[Path]:
    """Compile the sources in a folder for every kind of processor; return the libraries, which lie next to the sources.

    Raises:
        subprocess.CalledProcessError: the compiler failed.
    """
    kinds = {"default": [], **(X86 if platform.machine() in ("x86_64", "AMD64") else {})}
    sources, made = sorted(map(str, folder.glob("*.c"))), []
    for name, options in kinds.items():
        library, unfinished = folder / f"kernels-{name}.so", folder / f"kernels-{name}.so.{os.getpid()}"
        define = f'-DSOURCES="{fingerprint(folder)}"'
        line = [*command, *FLAGS, *options, define, *sources, "-o", str(unfinished), "-lm"]
        try:
            subprocess.run(line, check=True, capture_output=True, text=True)  # noqa: S603 - no input of others
            unfinished.replace(library)  # a process that uses the old library still has it
        finally:
            unfinished.unlink(missing_ok=True)
        made.append(library)
    return made


def tag(libraries: list[Path]) -> str:
    """Return the tag of a wheel with these libraries: it names the oldest C library that they work with."""
    if sys.platform == "darwin":
        from packaging.tags import platform_tags

        return f"py3-none-{next(iter(platform_tags()))}"
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", b"".join(path.read_bytes() for path in libraries))
    newest = max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))
    portable = platform.libc_ver()[0] == "glibc" and newest <= OLDEST_GLIBC
    system = "manylinux_{}_{}".format(*OLDEST_GLIBC) if portable else "linux"
    return f"py3-none-{system}_{platform.machine()}"


class CompiledKernels(BuildHookInterface):
    """Adds the libraries to a wheel, or puts them next to the sources for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and describe the result in `build_data`."""
        command, folder = compiler(), Path(self.root) / FOLDER
        if command is None or os.environ.get(VARIABLE) == "off":
            return
        try:
            libraries = compile_libraries(folder, command)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = str(getattr(error, "stderr", None) or error).strip()
            self.app.display_warning(f"rlsdk-kernels is installed without compiled code: {reason}")
            return
        if version != "editable":
            build_data["artifacts"] += [f"/{FOLDER.as_posix()}/{library.name}" for library in libraries]
            build_data["pure_python"], build_data["tag"] = False, tag(libraries)
