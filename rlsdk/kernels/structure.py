"""What reads names of torch that are not public: the check whether a network has changed since its kernel was made, and the
draws of initial weights from a seed.

In a version of torch without the attributes that the check reads, `KNOWN` is False, no kernels are used and every check reports
a change. A test allows private names of torch in `rlsdk.kernels` only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from operator import attrgetter, is_
from threading import local
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import torch
from torch import Generator, Tensor, nn
from torch._ops import OpOverload
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle

KernelT = TypeVar("KernelT")


_values, _submodules = dict.values, attrgetter("_modules")
# no module and no parameter
_END = (object(),)


# Per thread: another thread may replace layers while this one makes a round of updates.
class _FixedBlock(local):
    block: object = None
    """The innermost `fixed_layers()` block of a thread."""


_fixed = _FixedBlock()


@contextmanager
def fixed_layers() -> Iterator[None]:
    """Promise that this thread replaces no layers and adds no hooks inside the `with` block: each network is examined once."""
    before, _fixed.block = _fixed.block, object()
    try:
        yield
    finally:
        _fixed.block = before


class _Check:
    """The modules, parameters and hooks of networks at the last check, compared by identity.

    A check takes a few microseconds for a small network. All `Structure` objects of the same networks share it. Values
    are not compared, because kernels read the memory of the parameters.
    """

    def __init__(self, roots: tuple[nn.Module, ...], only: tuple[str, ...]) -> None:
        self.roots, self.only, self.hooked = roots, only, False
        self.changes = 0
        """The number of checks that found a change, including the first check."""
        self.checked_in: object = None
        self._containers: list[nn.Module] = []
        self._leaves: list[dict[str, nn.Parameter | None]] = []
        # contents at the last check; never equal at first
        self._members: list[object] = [self]
        self._attributes: list[dict[str, object]] = []
        self._sizes: list[int] = []
        self._last_hook = -1

    def compare(self, block: object) -> None:
        """Compare the networks with the last check and count a change. `block` identifies the `fixed_layers()` block,
        or is None."""
        self.checked_in = block
        # `next_id` counts all hooks of this process
        if self._last_hook == RemovableHandle.next_id and not self.hooked:
            # loops in C, because this runs at every prediction; almost always nothing has changed
            now = chain(*map(_values, map(_submodules, self._containers)), *map(_values, self._leaves), _END)
            if all(map(is_, now, self._members)) and self._sizes == list(map(len, self._attributes)):
                return
        members, sizes, hooked = self._members, self._sizes, self.hooked
        if KNOWN:
            self._remember()
        same = KNOWN and len(members) == len(self._members) and all(map(is_, members, self._members))
        self.changes += not (same and sizes == self._sizes and hooked == self.hooked)

    def _remember(self) -> None:
        self._last_hook = RemovableHandle.next_id
        parts = [root._modules[name] for root in self.roots for name in self.only] if self.only else self.roots
        # Networks may share modules; each is compared once.
        modules = list(dict.fromkeys(chain.from_iterable(part.modules() for part in parts if part is not None)))
        # an empty container may get its first module later
        lists = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
        containers = [module for module in modules if module._modules or isinstance(module, lists)]
        self._containers = [*(self.roots if self.only else ()), *containers]
        self._leaves = [module._parameters for module in modules if module._parameters]
        tables = (*map(_values, map(_submodules, self._containers)), *map(_values, self._leaves))
        # the end mark reveals added entries
        self._members = [*chain(*tables), *_END]
        self._attributes = list(map(vars, modules))
        self._sizes = list(map(len, self._attributes))
        hooks = [getattr(module, name) for module in modules for name in HOOKS]
        self.hooked = any(GLOBAL_HOOKS) or any(hooks) or any("forward" in own for own in self._attributes)


_checks: WeakValueDictionary[tuple[object, ...], _Check] = WeakValueDictionary()
"""Checks by the ids of the networks and the names of children. A check refers to its networks, so the ids stay valid."""


class Structure:
    """Detects changes of the modules, parameters and hooks of networks, for one user that asks from time to time."""

    def __init__(self, *roots: nn.Module, only: tuple[str, ...] = ()) -> None:
        """`only` are names of children of the roots to which the check is restricted; () = all."""
        self.roots, self.only, self._seen = roots, only, 0
        key = (*map(id, roots), only)
        # Actor, critic and optimizer ask about the same networks; the first one examines them for all.
        self._check = _checks.get(key) or _checks.setdefault(key, _Check(roots, only))

    @property
    def hooked(self) -> bool:
        """Whether a hook, or a `forward` set on an instance, requires calls of modules, which kernels would skip."""
        return self._check.hooked

    def changed(self) -> bool:
        """Whether something was replaced, added or removed since the last call; True at the first call."""
        check, block = self._check, _fixed.block
        if block is None or block is not check.checked_in:
            check.compare(block)
        before, self._seen = self._seen, check.changes
        return before != self._seen

    def __getstate__(self) -> dict[str, object]:
        """A copy performs its own checks."""
        return {"roots": self.roots, "only": self.only}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["roots"], only=state["only"])  # type: ignore[misc]


class KernelSlot(Generic[KernelT]):
    """Holds the kernel of a network, and makes it again after modules, parameters or hooks have changed."""

    def __init__(self, make: Callable[[bool], KernelT], root: nn.Module, only: tuple[str, ...] = ()) -> None:
        """`make` is a method of the network that makes the kernel, given whether there are hooks.

        Copies of the network get their own kernels.
        """
        self._make, self.structure = make, Structure(root, only=only)
        # The first call reports a change, for which the kernel below is made already.
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


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(
    getattr(torch_module, f"_global{name}")
    for name in HOOKS
    if isinstance(getattr(torch_module, f"_global{name}", 0), dict)
)
function_modes: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 1)
"""Returns the number of modes that intercept torch's functions (a default device is one); 1 if this torch does not
count them."""
KNOWN = hasattr(RemovableHandle, "next_id") and all(
    isinstance(getattr(nn.Module(), name, None), dict) for name in (*HOOKS, "_modules", "_parameters")
)
"""Whether this version of torch has the attributes that kernels read."""


def is_hooked(module: nn.Module) -> bool:
    """Whether the module has hooks, or a `forward` set on the instance."""
    return (
        bool(any(GLOBAL_HOOKS) or "forward" in vars(module))
        or not KNOWN
        or any(getattr(module, name) for name in HOOKS)
    )


BEFORE_OPERATION: ContextVar[Callable[[str, Sequence[object], Mapping[str, object]], None] | None] = ContextVar(
    "BEFORE_OPERATION", default=None
)
"""A function that `SeededDraws` calls with the name and arguments of every operation, to refuse it by an error."""


class SeededDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Inside the `with` block, torch functions of this thread without their own generator draw from generators with one
    seed.

    The numbers equal those of torch's global generator after `torch.manual_seed(seed)`, bit by bit.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False. Otherwise torch would import its compiler, which takes two seconds."""
        return False

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed, self._before = seed, BEFORE_OPERATION.get()
        self._generators: dict[str, Generator] = {}

    def __torch_dispatch__(
        self, function: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        # A copy, because torch passes the arguments of the caller.
        options = dict(kwargs or {})
        if self._before is not None:
            self._before(function.overloadpacket.__name__, args, options)
        if torch.Tag.nondeterministic_seeded not in function.tags or options.get("generator") is not None:
            return function(*args, **options)
        device = (
            args[0].device if args and isinstance(args[0], Tensor) else torch.device(options.get("device") or "cpu")
        )
        generator = self._generator(device)
        if any(argument.name == "generator" for argument in function._schema.arguments):
            return function(*args, **{**options, "generator": generator})
        packet, name = function.overloadpacket, function._schema.name.removeprefix("aten::")
        # These operations have no form that takes a generator.
        if name in _LIKE:
            return _LIKE[name](torch.empty_like(args[0], **options), generator, *args[1:])
        overload = {"default": "generator", "low": "low_generator"}.get(function._overloadname, "")
        if overload in packet.overloads():
            return getattr(packet, overload)(*args, **{**options, "generator": generator})
        # operations that use only the global generator
        with _LOCK, torch.random.fork_rng(devices=[]):
            torch.default_generator.set_state(self._generator(torch.device("cpu")).get_state())
            found = function(*args, **options)
            self._generator(torch.device("cpu")).set_state(torch.default_generator.get_state())
            return found

    def _generator(self, device: torch.device) -> Generator:
        if device.type not in self._generators:
            self._generators[device.type] = Generator(device=device).manual_seed(self.seed)
        return self._generators[device.type]


_LOCK = threading.Lock()
_LIKE: dict[str, Callable[..., Tensor]] = {
    "randn_like": lambda empty, generator: empty.normal_(generator=generator),
    "rand_like": lambda empty, generator: empty.uniform_(generator=generator),
    "randint_like": lambda empty, generator, *bounds: empty.random_(*((0, *bounds)[-2:]), generator=generator),
}
