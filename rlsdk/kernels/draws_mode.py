"""Seeds torch's random functions in one thread, without the global generator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Generator, Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode


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
        self.seed = seed
        self._generators: dict[str, Generator] = {}

    def __torch_dispatch__(
        self, function: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        options = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in function.tags or options.get("generator") is not None:
            return function(*args, **options)
        device = (
            args[0].device if args and isinstance(args[0], Tensor) else torch.device(options.get("device") or "cpu")
        )
        generator = self._generator(device)
        if any(argument.name == "generator" for argument in function._schema.arguments):
            return function(*args, **{**options, "generator": generator})
        packet, name = function.overloadpacket, function._schema.name.removeprefix("aten::")
        if name in _LIKE:
            return _LIKE[name](torch.empty_like(args[0], **options), generator, *args[1:])
        overload = {"default": "generator", "low": "low_generator"}.get(function._overloadname, "")
        if overload in packet.overloads():
            return getattr(packet, overload)(*args, **{**options, "generator": generator})
        with _LOCK, torch.random.fork_rng(devices=[]):  # operations that use only the global generator
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
