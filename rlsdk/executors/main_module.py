"""Starting processes from a script that has no line `if __name__ == "__main__":`.

`multiprocessing` imports the main script in every process that it spawns, because objects sent there may be defined in it.
Importing a script without that line would start its training again. So the functions here prevent the import. A process that
needs an object of such a script ends with the exit code `NEEDS_MAIN`.
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
"""Names of the module of the main script: in this process, and in processes that `multiprocessing` starts."""
NEEDS_MAIN = 117
"""Exit code of a process that needs an object of a main script that is not imported."""
_GUARD = re.compile(r"^if\b.*\b__name__\b", re.MULTILINE)
_exchanging = threading.Lock()


@attrs.frozen
class Script:
    """A main script that other processes do not import.

    Unpickling a `Script` in a started process replaces `__main__` there by a module without the script's objects.
    """

    path: str

    @staticmethod
    def unguarded() -> Script | None:
        """Return the main script of this process if it has no `if __name__ ...` line.

        None if it has that line, if its file cannot be read, or if there is no script, as in notebooks.
        """
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
        """Return why a process ended with `NEEDS_MAIN` and how to mend it, as text that continues "its process"."""
        guard = "put the code that trains under `if __name__ == '__main__':`"
        return f"needs a class or function of {self.path}, which it must not import, as that would train there too; {guard}"


class _Hidden(ModuleType):
    """The main module with no `__file__` and an empty `__spec__`: `multiprocessing` imports what these two name."""

    def __init__(self, main: ModuleType) -> None:
        super().__init__(MAIN)
        self._main = main

    def __getattr__(self, name: str) -> object:
        if name == "__file__":
            raise AttributeError(name)
        return getattr(self._main, name)


class _Missing(ModuleType):
    """A main module without objects: the first access to one ends the process with the exit code `NEEDS_MAIN`."""

    def __init__(self, path: str) -> None:
        super().__init__(MAIN)
        self.__file__ = path

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        os._exit(NEEDS_MAIN)


@contextlib.contextmanager
def hidden(script: Script | None) -> Iterator[None]:
    """Return a context manager: processes that are started inside it do not import the main script `script`."""
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
    """Unpickle a `Script`. In a started process, whose `__main__` has no file, replace `__main__` by `_Missing`."""
    if not hasattr(sys.modules[MAIN], "__file__"):
        sys.modules[MAIN] = sys.modules[IN_CHILDREN] = _Missing(path)
    return Script(path)
