"""Processes of a script that has no `if __name__ == "__main__":`.

`multiprocessing` imports the main script in every process that it spawns, as objects that are sent may be of the script.
A script without that line would train there again. It is not imported, and a process that needs an object of it ends with
the exit code `NEEDS_MAIN`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import attrs

MAIN, IN_CHILDREN = "__main__", "__mp_main__"
"""Names of the main script's module, here and in processes that `multiprocessing` starts."""
NEEDS_MAIN = 117
"""Exit code of a process that needs an object of such a script."""
_GUARD = re.compile(r"^if\b.*\b__name__\b", re.MULTILINE)
_exchanging = threading.Lock()


@attrs.frozen
class Script:
    """A main script that is not imported elsewhere. Unpickling it makes `__main__` missing in a started process."""

    path: str

    @staticmethod
    def unguarded() -> Script | None:
        """The main script of this process; None where others may import it, or where there is none, as in notebooks."""
        path: str | None = getattr(sys.modules[MAIN], "__file__", None)
        if path is None:
            return None
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return None if _GUARD.search(text) else Script(os.path.abspath(path))

    def __reduce__(self) -> tuple[Callable[[str], Script], tuple[str]]:
        return _missing, (self.path,)

    def why(self) -> str:
        """Why a process ended with `NEEDS_MAIN`, and how to mend it; continues "its process"."""
        guard = "put the code that trains under `if __name__ == '__main__':`"
        return f"needs a class or function of {self.path}, which it must not import, as that would train there too; {guard}"


class _Hidden(ModuleType):
    """The main module without the name and path by which `multiprocessing` has it imported."""

    def __init__(self, main: ModuleType) -> None:
        super().__init__(MAIN)
        self._main = main

    def __getattr__(self, name: str) -> object:
        if name == "__file__":
            raise AttributeError(name)
        return getattr(self._main, name)


class _Missing(ModuleType):
    """A main module of which nothing can be had."""

    def __init__(self, path: str) -> None:
        super().__init__(MAIN)
        self.__file__ = path

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        os._exit(NEEDS_MAIN)


@contextlib.contextmanager
def hidden(script: Script | None) -> Iterator[None]:
    """Processes started inside do not import this main script."""
    if script is None:
        yield
        return
    with _exchanging:
        main = sys.modules[MAIN]
        sys.modules[MAIN] = _Hidden(main)
        try:
            yield
        finally:
            sys.modules[MAIN] = main


def _missing(path: str) -> Script:
    """In a process that was started, whose `__main__` has no file: it is missing from now on."""
    if not hasattr(sys.modules[MAIN], "__file__"):
        sys.modules[MAIN] = sys.modules[IN_CHILDREN] = _Missing(path)
    return Script(path)
