"""One seed, many named random streams. Global random state is neither read nor written."""

from __future__ import annotations

import secrets
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rlsdk.math.stored import put_back


def fresh_seed() -> int:
    """A seed from the operating system, for users who gave none; it is recorded with the run."""
    return secrets.randbelow(2**32)


def derive(seed: int, name: str, index: int = 0) -> int:
    """The seed of stream `name`; streams are independent of one another and of the order they are asked for in."""
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()), index))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


class Streams:
    """The torch generators of one agent, made when first asked for: `streams["action"]`, `streams["replay"]`, ..."""

    def __init__(self, seed: int, device: str = "cpu") -> None:
        self.seed, self.device = seed, device
        self._generators: dict[str, Generator] = {}

    def __getitem__(self, name: str) -> Generator:
        if name not in self._generators:
            generator = Generator(device=self.device)
            generator.manual_seed(derive(self.seed, name))
            self._generators[name] = generator
        return self._generators[name]

    def reseed(self, seed: int) -> None:
        """Start every stream again from `seed`, in place: whoever holds a generator goes on with it."""
        self.seed = seed
        for name, generator in self._generators.items():
            generator.manual_seed(derive(seed, name))

    def state_dict(self) -> dict[str, Tensor]:
        """uint8 state of every stream in use."""
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            put_back(self[name], value)


class _OwnDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Random numbers that this thread asks torch for without naming a generator, from generators of one seed.

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
