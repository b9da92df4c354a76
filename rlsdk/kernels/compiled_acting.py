"""Acting in compiled code: one call evaluates a network and chooses the actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from rlsdk.kernels.compiled_dense import CompiledDense
from rlsdk.kernels.compiled_library import as_floats, loaded_library
from rlsdk.kernels.compiled_policy import as_mask, require_readable
from rlsdk.kernels.protocol import GumbelNoise, NormalNoise

Sampler = Callable[[Tensor, Tensor | None, Generator], Tensor]
"""A function that returns internal actions [B, ..] for features [B, F] and a mask [B, O] or None."""


def sampler(network: CompiledDense, noise: NormalNoise | GumbelNoise) -> Sampler:
    """Return the function that samples actions, with the outputs of `network` as parameters of the distribution."""
    if isinstance(noise, NormalNoise):
        return partial(_vectors, network, noise)
    return partial(_choices, network, noise)


def _choices(
    network: CompiledDense, noise: GumbelNoise, features: Tensor, mask: Tensor | None, generator: Generator
) -> Tensor:
    """Sample choices int64 [B]: the index of the largest sum of logit and Gumbel noise."""
    shape = features.shape[0], network.output_size
    drawn = torch.empty(shape, dtype=torch.float32, device="cpu").exponential_(generator=generator)
    allowed = None if mask is None else as_mask(mask, shape)
    found = torch.empty(shape[0], dtype=torch.int64, device="cpu")
    network.call(
        loaded_library().act_by_choice,
        features,
        None if allowed is None else allowed.data_ptr(),
        drawn.data_ptr(),
        noise.forbidden,
        noise.smallest,
        found.data_ptr(),
    )
    return found


def _vectors(
    network: CompiledDense, noise: NormalNoise, features: Tensor, mask: Tensor | None, generator: Generator
) -> Tensor:
    """Sample vectors [B, A] as mean + std * noise. `mask` is not used."""
    log_std = as_floats(noise.log_std)
    require_readable(log_std, (network.output_size,), torch.float32)
    drawn = torch.randn((features.shape[0], network.output_size), generator=generator, dtype=torch.float32, device="cpu")
    network.call(loaded_library().act_by_noise, features, log_std.data_ptr(), drawn.data_ptr())
    return drawn


def greedy(
    network: CompiledDense, entries: int, features: Tensor, epsilon: Tensor | None, generator: Generator
) -> Tensor:
    """Return actions int64 [N] with the largest sum of their values, given features [N, F] and `entries` values per action.

    Each is random with probability `epsilon` (0-d; None: 0).
    """
    rows, actions = features.shape[0], network.output_size // entries
    found, numbers = torch.empty(rows, dtype=torch.int64, device="cpu"), (None, None, None)
    if epsilon is not None:
        other = torch.randint(actions, (rows,), generator=generator, device="cpu")
        random, limit = torch.rand(rows, generator=generator, device="cpu", dtype=torch.float32), as_floats(epsilon)
        numbers = limit.data_ptr(), random.data_ptr(), other.data_ptr()  # type: ignore[assignment]
    network.call(loaded_library().act_greedily, features, entries, *numbers, found.data_ptr())
    return found


def fits(network: CompiledDense, features: Tensor) -> bool:
    """Whether compiled code can read the rows of `features` [T, B, F] where they are."""
    readable = features.dtype is torch.float32 and features.is_cpu and features.is_contiguous()
    return readable and features.dim() == 3 and features.shape[2] == network.input_size


def sampler_in_place(
    network: CompiledDense, noise: NormalNoise | GumbelNoise, features: Tensor, generator: Generator
) -> tuple[Callable[[int], None], Tensor]:
    """Return (a function of t that samples the actions of `features[t]` [B, F], their storage [T, B, ..])."""
    library, (steps, rows), size = loaded_library(), features.shape[:2], network.output_size
    if isinstance(noise, NormalNoise):
        vectors, log_std = torch.empty((steps, rows, size), dtype=torch.float32, device="cpu"), as_floats(noise.log_std)
        require_readable(log_std, (size,), torch.float32)
        call, parts, place = network.calls(library.act_by_noise, features), vectors.unbind(), log_std.data_ptr()

        def act(t: int, log_std: Tensor = log_std) -> None:
            part = parts[t].normal_(generator=generator)
            call(t, place, part.data_ptr())

        return act, vectors
    found, drawn = _places(steps, rows), torch.empty((rows, size), dtype=torch.float32, device="cpu")
    call, of_drawn, start = network.calls(library.act_by_choice, features), drawn.data_ptr(), found.data_ptr()

    def choose(t: int) -> None:
        drawn.exponential_(generator=generator)
        call(t, None, of_drawn, noise.forbidden, noise.smallest, start + 8 * rows * t)

    return choose, found


def greedy_in_place(
    network: CompiledDense, entries: int, features: Tensor, epsilon: Tensor, generator: Generator
) -> tuple[Callable[[int], None], Tensor]:
    """Return (a function of t that acts epsilon-greedily on `features[t]` [B, F], its storage of actions [T, B])."""
    (steps, rows), actions, limit = features.shape[:2], network.output_size // entries, as_floats(epsilon)
    found, other, random = _places(steps, rows), _places(rows), torch.empty(rows, dtype=torch.float32, device="cpu")
    call, start = network.calls(loaded_library().act_greedily, features), found.data_ptr()
    numbers = limit.data_ptr(), random.data_ptr(), other.data_ptr()

    def act(t: int, limit: Tensor = limit) -> None:
        other.random_(0, actions, generator=generator)
        random.uniform_(generator=generator)
        call(t, entries, *numbers, start + 8 * rows * t)

    return act, found


def _places(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.int64, device="cpu")
