"""Acting in compiled code: one call evaluates a network and chooses the actions.

For a rollout, actions are written directly to its storage, see `PolicyAbilities.act_in_place`. Then addresses are determined
once, and a step makes one call of compiled code, and one or two of torch for random numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from rlsdk.kernels import GumbelNoise, NormalNoise
from rlsdk.runtime import LastPrepared
from rlsdk_kernels.backends import NUMPY_WIDTH
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.compiled_library import as_floats, as_mask, loaded_library, require_readable
from rlsdk_kernels.dense_kernel import ACTING_ROWS

InPlace = tuple[Callable[[int], None], Tensor]
"""(A function of t that acts on row t of observations [T, B, ..], the storage [T, B, ..] that it writes actions to.)"""


def pays(network: CompiledDense, rows: int) -> bool:
    """Whether this is the fastest way to act in this number of environments. Libraries multiply large matrices faster."""
    return rows <= ACTING_ROWS or network.widest <= NUMPY_WIDTH


def can_act_in_place(network: CompiledDense, features: Tensor, mask: Tensor | None = None) -> bool:
    """Whether compiled code can read the rows of `features` [T, B, F] and `mask` [T, B, O] where they are, and is the fastest
    way to act."""
    readable = features.dtype is torch.float32 and features.is_cpu and features.is_contiguous()
    shape = features.shape[1:]
    fits = readable and len(shape) == 2 and shape[1] == network.input_size and pays(network, shape[0])
    return fits and (mask is None or mask.is_contiguous())


class VectorSampling:
    """Samples vectors float [B, A] as mean + std * noise. The outputs of the network are the means."""

    def __init__(self, network: CompiledDense, noise: NormalNoise) -> None:
        self.network, self.noise = network, noise

    def __call__(self, features: Tensor, mask: Tensor | None, generator: Generator) -> Tensor:
        """Return actions [B, A] for features [B, F]. `mask` is not used."""
        log_std, shape = self._log_std(), (features.shape[0], self.network.output_size)
        drawn = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        self.network.call(loaded_library().act_by_noise, features, log_std.data_ptr(), drawn.data_ptr())
        return drawn

    def in_place(self, features: Tensor, mask: Tensor | None, generator: Generator) -> InPlace:
        """Prepare acting on `features` [T, B, F]. `mask` is not used."""
        storage, log_std = features.new_empty(*features.shape[:2], self.network.output_size), self._log_std()
        call, parts = self.network.calls(loaded_library().act_by_noise, features, log_std), storage.unbind()

        def act(t: int) -> None:
            drawn = parts[t].normal_(generator=generator)
            call(t, log_std.data_ptr(), drawn.data_ptr())

        return act, storage

    def known(self) -> tuple[object, ...]:
        """The objects whose addresses a function of `in_place` knows. It is valid while they stay the same objects."""
        return self.network.layers(), self._log_std()

    def _log_std(self) -> Tensor:
        found = as_floats(self.noise.log_std)
        require_readable(found, (self.network.output_size,), torch.float32)
        return found


class ChoiceSampling:
    """Samples choices int64 [B] as the index of the largest sum of logit and Gumbel noise. The outputs are the logits."""

    def __init__(self, network: CompiledDense, noise: GumbelNoise) -> None:
        self.network, self.noise = network, noise

    def __call__(self, features: Tensor, mask: Tensor | None, generator: Generator) -> Tensor:
        """Return actions [B] for features [B, F] and a mask, bool [B, O] or None."""
        network, noise, shape = self.network, self.noise, (features.shape[0], self.network.output_size)
        drawn = torch.empty(shape, dtype=torch.float32, device="cpu").exponential_(generator=generator)
        allowed, found = None if mask is None else as_mask(mask, shape), _integers(shape[0])
        place = None if allowed is None else allowed.data_ptr()
        numbers = place, drawn.data_ptr(), noise.smallest, found.data_ptr()
        network.call(loaded_library().act_by_choice, features, *numbers)
        return found

    def in_place(self, features: Tensor, mask: Tensor | None, generator: Generator) -> InPlace:
        """Prepare acting on `features` [T, B, F] with masks, bool [T, B, O] or None."""
        (steps, rows), choices, noise = features.shape[:2], self.network.output_size, self.noise
        if mask is not None:
            require_readable(mask, (steps, rows, choices), torch.bool)
        found, drawn = _integers(steps, rows), features.new_empty(rows, choices)
        masks = [None] * steps if mask is None else [mask.data_ptr() + rows * choices * t for t in range(steps)]
        call = self.network.calls(loaded_library().act_by_choice, features, found, *(() if mask is None else (mask,)))
        numbers, start, size = (drawn.data_ptr(), noise.smallest), found.data_ptr(), 8 * rows

        def act(t: int) -> None:
            drawn.exponential_(generator=generator)
            call(t, masks[t], *numbers, start + size * t)

        return act, found

    def known(self) -> tuple[object, ...]:
        """The objects whose addresses a function of `in_place` knows; see `VectorSampling`."""
        return (self.network.layers(),)


def sampling_of(network: CompiledDense, noise: NormalNoise | GumbelNoise) -> VectorSampling | ChoiceSampling:
    """Return what samples the actions of a network with this noise."""
    if isinstance(noise, NormalNoise):
        return VectorSampling(network, noise)
    return ChoiceSampling(network, noise)


class GreedyChoice:
    """Chooses actions int64 [B] with the largest sum of `entries` values, the outputs of the network, or random ones."""

    def __init__(self, network: CompiledDense, entries: int) -> None:
        self.network, self.entries, self.actions = network, entries, network.output_size // entries
        self._last: LastPrepared[InPlace] = LastPrepared()

    def __call__(self, features: Tensor, epsilon: Tensor | None, generator: Generator) -> Tensor:
        """Return actions [B] for features [B, F]; each is random with probability `epsilon` (0-d; None: 0)."""
        rows = features.shape[0]
        found, numbers = _integers(rows), tuple[int | None, ...]((None, None, None))
        if epsilon is not None:
            other = torch.randint(self.actions, (rows,), generator=generator, device="cpu")
            random, limit = torch.rand(rows, generator=generator, dtype=torch.float32, device="cpu"), as_floats(epsilon)
            numbers = limit.data_ptr(), random.data_ptr(), other.data_ptr()
        self.network.call(loaded_library().act_greedily, features, self.entries, *numbers, found.data_ptr())
        return found

    def in_place(self, features: Tensor, epsilon: Tensor, generator: Generator) -> InPlace:
        """Prepare acting on `features` [T, B, F]. Each step reads the current value of `epsilon`, float32 on the CPU."""
        known = features, epsilon, generator, self.network.layers()
        if (before := self._last.find(*known)) is not None:
            return before
        (steps, rows), actions, entries = features.shape[:2], self.actions, self.entries
        found, other, random = _integers(steps, rows), _integers(rows), features.new_empty(rows)
        call = self.network.calls(loaded_library().act_greedily, features, found)
        numbers = random.data_ptr(), other.data_ptr()
        start, size = found.data_ptr(), rows * found.element_size()

        def act(t: int) -> None:
            other.random_(0, actions, generator=generator)
            random.uniform_(generator=generator)
            call(t, entries, epsilon.data_ptr(), *numbers, start + size * t)

        return self._last.remember((act, found), *known)


def _integers(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.int64, device="cpu")
