"""Random initial weights that depend on the agent's seed alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rlsdk.runtime.seeding import derive


class _OwnDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Inside the block, torch functions without a generator of their own draw from generators of one seed, in this thread.

    They are those that torch's global generator would give after `torch.manual_seed(seed)`, to the bit.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed = seed
        self._generators: dict[str, Generator] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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
        with _LOCK, torch.random.fork_rng(devices=[]):  # operations that know the global generator alone
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


@contextmanager
def initialisation(seed: int) -> Iterator[None]:
    """Networks built inside the block get their random weights from `seed`, whatever other threads draw meanwhile.

    torch's global generator is neither read nor written, and gradient and inference modes of the caller do not count.
    """
    with torch.inference_mode(False), torch.enable_grad(), _OwnDraws(derive(seed, "initialisation")):
        yield


@torch.no_grad()
def orthogonal(part: nn.Module, gain: float) -> None:
    """Orthogonal weights and zero biases of linear layers and convolutions; other modules keep their initial weights."""
    for module in part.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(module.weight, gain)
            if module.bias is not None:
                module.bias.zero_()
