"""Notices when a network differs from the one a kernel was made for.

It reads tables of torch's modules that have no public names; where this torch has others, `KNOWN` is False, no kernels are used
and every check reports a change.
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
    """The innermost `fixed_layers()` of a thread."""


_steady = _Steady()


@contextmanager
def fixed_layers() -> Iterator[None]:
    """Inside the block this thread replaces no layers and adds no hooks: each network is looked at once."""
    before, _steady.block = _steady.block, object()
    try:
        yield
    finally:
        _steady.block = before


class _Look:
    """What was last seen of the modules, parameters and hooks of networks, compared by identity: a few microseconds for a small
    network, which all that ask for the same networks share.

    Values are not compared: kernels read the parameters' own memory.
    """

    def __init__(self, roots: tuple[nn.Module, ...], only: tuple[str, ...]) -> None:
        self.roots, self.only, self.hooked = roots, only, False
        self.changes = 0
        """How often something was found changed, the first look among them."""
        self.looked_in: object = None
        self._containers: list[nn.Module] = []
        self._leaves: list[dict[str, nn.Parameter | None]] = []
        self._members: list[object] = [self]  # what they held at the last look; never equal at first
        self._attributes: list[dict[str, object]] = []
        self._sizes: list[int] = []
        self._last_hook = -1

    def look(self, block: object) -> None:
        """Count where something was replaced, added or removed since the last look; `block`: of `fixed_layers()`, or None."""
        self.looked_in = block
        if (
            self._last_hook == RemovableHandle.next_id  # counts every hook of this process
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
        self._members = [*chain(*tables), *_END]  # the end shows what was added last
        self._attributes = list(map(vars, modules))
        self._sizes = list(map(len, self._attributes))
        hooks = [getattr(module, name) for module in modules for name in HOOKS]
        self.hooked = any(GLOBAL_HOOKS) or any(hooks) or any("forward" in own for own in self._attributes)


_looks: WeakValueDictionary[tuple[object, ...], _Look] = WeakValueDictionary()
"""By the ids of the networks, which live as long as the look at them, and the names of children."""


class Structure:
    """Notices changes of the modules, parameters and hooks of networks, for one that asks now and then."""

    def __init__(self, *roots: nn.Module, only: tuple[str, ...] = ()) -> None:
        """`only`: names of the roots' children that matter; () = all."""
        self.roots, self.only, self._seen = roots, only, 0
        key = (*map(id, roots), only)
        self._look = _looks.get(key) or _looks.setdefault(key, _Look(roots, only))

    @property
    def hooked(self) -> bool:
        """Whether a hook, or a `forward` set on an instance, needs calls of modules, which kernels leave out."""
        return self._look.hooked

    def changed(self) -> bool:
        """Whether something was replaced, added or removed since the last call; True at the first one."""
        look, block = self._look, _steady.block
        if block is None or block is not look.looked_in:
            look.look(block)
        before, self._seen = self._seen, look.changes
        return before != self._seen

    def __getstate__(self) -> dict[str, object]:
        """Copies check for themselves."""
        return {"roots": self.roots, "only": self.only}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["roots"], only=state["only"])  # type: ignore[misc]


def _may_hold(module: nn.Module) -> bool:
    """Whether a module has others inside, or is a container to which some may be added."""
    return bool(module._modules) or isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)


class KernelSlot(Generic[KernelT]):
    """The kernel of a network as it is: made again after modules, parameters or hooks have changed."""

    def __init__(self, make: Callable[[bool], KernelT], root: nn.Module, only: tuple[str, ...] = ()) -> None:
        """`make`: a method of the network, called with whether there are hooks; copies of the network get their own."""
        self._make, self.structure = make, Structure(root, only=only)
        self.structure.changed()
        self.kernel: KernelT = make(self.structure.hooked)
        """As of the last check; call the object for the current one."""

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
        """Made at the first use: the network around it may not be whole yet."""
        self._make, self.structure = state["make"], Structure(state["root"], only=state["only"])
