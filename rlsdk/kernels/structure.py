"""Detects changes of a network after its kernel was made.

It reads attributes of torch's modules that are not public. In a version of torch without them, `KNOWN` is False, no
kernels are used and every check reports a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter, is_
from threading import local
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from torch import nn
from torch.utils.hooks import RemovableHandle

from rlsdk.kernels.hooks import GLOBAL_HOOKS, HOOKS, KNOWN

KernelT = TypeVar("KernelT")
_values, _submodules = dict.values, attrgetter("_modules")
_END = (object(),)  # no module and no parameter


class _Steady(local):
    block: object = None
    """The innermost `fixed_layers()` block of a thread."""


_steady = _Steady()


@contextmanager
def fixed_layers() -> Iterator[None]:
    """Promise that this thread replaces no layers and adds no hooks inside the `with` block: each network is examined once."""
    before, _steady.block = _steady.block, object()
    try:
        yield
    finally:
        _steady.block = before


class _Look:
    """The modules, parameters and hooks of networks at the last check, compared by identity.

    A check takes a few microseconds for a small network. All `Structure` objects of the same networks share it. Values
    are not compared, because kernels read the memory of the parameters.
    """

    def __init__(self, roots: tuple[nn.Module, ...], only: tuple[str, ...]) -> None:
        self.roots, self.only, self.hooked = roots, only, False
        self.changes = 0
        """The number of checks that found a change, including the first check."""
        self.looked_in: object = None
        self._containers: list[nn.Module] = []
        self._leaves: list[dict[str, nn.Parameter | None]] = []
        self._members: list[object] = [self]  # contents at the last check; never equal at first
        self._attributes: list[dict[str, object]] = []
        self._sizes: list[int] = []
        self._last_hook = -1

    def look(self, block: object) -> None:
        """Compare the networks with the last check and count a change. `block` identifies the `fixed_layers()` block,
        or is None."""
        self.looked_in = block
        if (
            self._last_hook == RemovableHandle.next_id  # counts all hooks of this process
            and not self.hooked
            and False
            not in map(
                is_,
                chain(*map(_values, map(_submodules, self._containers)), *map(_values, self._leaves), _END),
                self._members,
            )
            and self._sizes == list(map(len, self._attributes))
        ):
            return
        members, sizes, hooked = self._members, self._sizes, self.hooked
        if KNOWN:
            self._note()
        same = KNOWN and len(members) == len(self._members) and all(map(is_, members, self._members))
        self.changes += not (same and sizes == self._sizes and hooked == self.hooked)

    def _note(self) -> None:
        self._last_hook = RemovableHandle.next_id
        parts = [root._modules[name] for root in self.roots for name in self.only] if self.only else self.roots
        modules = list(dict.fromkeys(chain.from_iterable(part.modules() for part in parts if part is not None)))
        self._containers = [*(self.roots if self.only else ()), *(m for m in modules if _may_hold(m))]
        self._leaves = [module._parameters for module in modules if module._parameters]
        tables = (*map(_values, map(_submodules, self._containers)), *map(_values, self._leaves))
        self._members = [*chain(*tables), *_END]  # the end mark reveals added entries
        self._attributes = list(map(vars, modules))
        self._sizes = list(map(len, self._attributes))
        hooks = [getattr(module, name) for module in modules for name in HOOKS]
        self.hooked = any(GLOBAL_HOOKS) or any(hooks) or any("forward" in own for own in self._attributes)


_looks: WeakValueDictionary[tuple[object, ...], _Look] = WeakValueDictionary()
"""Checks by the ids of the networks and the names of children. A check refers to its networks, so the ids stay valid."""


class Structure:
    """Detects changes of the modules, parameters and hooks of networks, for one user that asks from time to time."""

    def __init__(self, *roots: nn.Module, only: tuple[str, ...] = ()) -> None:
        """`only` are names of children of the roots to which the check is restricted; () = all."""
        self.roots, self.only, self._seen = roots, only, 0
        key = (*map(id, roots), only)
        self._look = _looks.get(key) or _looks.setdefault(key, _Look(roots, only))

    @property
    def hooked(self) -> bool:
        """Whether a hook, or a `forward` set on an instance, requires calls of modules, which kernels would skip."""
        return self._look.hooked

    def changed(self) -> bool:
        """Whether something was replaced, added or removed since the last call; True at the first call."""
        look, block = self._look, _steady.block
        if block is None or block is not look.looked_in:
            look.look(block)
        before, self._seen = self._seen, look.changes
        return before != self._seen

    def __getstate__(self) -> dict[str, object]:
        """A copy performs its own checks."""
        return {"roots": self.roots, "only": self.only}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["roots"], only=state["only"])  # type: ignore[misc]


def _may_hold(module: nn.Module) -> bool:
    """Whether a module contains others, or is a container to which some may be added."""
    return bool(module._modules) or isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)


class KernelSlot(Generic[KernelT]):
    """Holds the kernel of a network, and makes it again after modules, parameters or hooks have changed."""

    def __init__(self, make: Callable[[bool], KernelT], root: nn.Module, only: tuple[str, ...] = ()) -> None:
        """`make` is a method of the network that makes the kernel, given whether there are hooks.

        Copies of the network get their own kernels.
        """
        self._make, self.structure = make, Structure(root, only=only)
        self.structure.changed()
        self.kernel: KernelT = make(self.structure.hooked)
        """The kernel of the last check; call the object for the current one."""

    def __call__(self) -> KernelT:
        if self.structure.changed():
            self.refit()
        return self.kernel

    def refit(self) -> None:
        """Make the kernel again."""
        self.kernel = self._make(self.structure.hooked)

    def __getstate__(self) -> dict[str, object]:
        return {"make": self._make, "root": self.structure.roots[0], "only": self.structure.only}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The kernel is made at its first use, because the network around it may not be complete yet."""
        self._make, self.structure = state["make"], Structure(state["root"], only=state["only"])
