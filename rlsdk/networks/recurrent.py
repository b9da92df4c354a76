"""Memories: LSTM, GRU and those of users. They process one step for acting, and whole sequences for learning.

For learning, the steps are divided into segments, padded and processed in parallel in one call, without a Python loop
over time steps. Only the start of a segment can reset the state. The results therefore equal those of single steps (a
test compares them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError, suggest
from rlsdk.math.surrogate import segments_of
from rlsdk.networks.encoders import UserClass
from rlsdk.settings.actor_critic import RecurrentConfig

KINDS: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class Memory(Protocol):
    """A memory between encoder and heads. Its state is a tuple of tensors [B, ..]; () for a memory without state."""

    features_dim: int

    def initial(self, batch: int) -> tuple[Tensor, ...]:
        """Return the state of `batch` environments at the start of an episode, tensors [batch, ..]."""
        ...

    def step(self, features: Tensor, state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return (latent [B, H], next state) for features [B, F]. Rows with `is_first`, bool [B], start from `initial`."""
        ...

    def sequence(self, features: Tensor, states: tuple[Tensor, ...], is_first: Tensor, starts: Tensor) -> Tensor:
        """Return the latents [N, H] of N steps in order.

        A new segment begins where `starts`, bool [N], is True. It starts from that row of `states`, tensors [N, ..], or
        from `initial` where `is_first`, bool [N], is True. Other rows of `states` are ignored.
        """
        ...


class NoMemory(nn.Module):
    """A memory without state, which returns the features unchanged."""

    def __init__(self, features_dim: int) -> None:
        super().__init__()
        self.features_dim = features_dim

    def initial(self, batch: int) -> tuple[Tensor, ...]:
        return ()

    def step(self, features: Tensor, state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return features, ()

    def sequence(self, features: Tensor, states: tuple[Tensor, ...], is_first: Tensor, starts: Tensor) -> Tensor:
        return features


class LinearMemory(NoMemory):
    """A linear layer in place of a memory. It has no state, but its output has the width of the actor's memory."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(outputs)
        self.linear = nn.Linear(inputs, outputs)

    def step(self, features: Tensor, state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.linear(features), ()

    def sequence(self, features: Tensor, states: tuple[Tensor, ...], is_first: Tensor, starts: Tensor) -> Tensor:
        return cast("Tensor", self.linear(features))


class RecurrentMemory(nn.Module):
    """A memory of `layers` layers of LSTM or GRU cells with `hidden` units each."""

    def __init__(self, kind: str, inputs: int, hidden: int, layers: int, arguments: Mapping[str, Any]) -> None:
        """Raises SettingsError if torch's module does not take `arguments`, or if they cannot be used for acting."""
        super().__init__()
        if kind not in KINDS:
            raise SettingsError(f"unknown memory {kind!r}; {suggest(kind, KINDS)}")
        try:
            self.cells = KINDS[kind](inputs, hidden, num_layers=layers, **arguments)
        except (TypeError, ValueError) as error:
            raise SettingsError(f"lstm_kwargs {dict(arguments)} do not fit {kind}: {error}") from None
        # while acting the future is unknown; the others change the shapes of the state
        if self.cells.bidirectional or self.cells.batch_first or self.cells.proj_size:
            raise SettingsError("lstm_kwargs: bidirectional, batch_first and proj_size are not possible while acting")
        self.parts, self.features_dim = (2 if kind == "lstm" else 1), hidden

    def initial(self, batch: int) -> tuple[Tensor, ...]:
        shape = (batch, self.cells.num_layers, self.cells.hidden_size)
        device = next(self.cells.parameters()).device
        return tuple(torch.zeros(shape, device=device) for _ in range(self.parts))

    def step(self, features: Tensor, state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        # by a mask and not by the collector, because one batch holds rows in the middle of episodes too
        masked = forgotten(state, is_first)
        latent, following = self.cells(features.unsqueeze(0), self._packed(masked))
        return latent.squeeze(0), self._unpacked(following)

    def sequence(self, features: Tensor, states: tuple[Tensor, ...], is_first: Tensor, starts: Tensor) -> Tensor:
        # the first row of a minibatch begins a segment even in the middle of an episode
        begins = starts.clone()
        begins[0] = True
        first_rows, segment, place = segments_of(begins)
        longest = int(place.max()) + 1
        # zeros after the ends of short segments cannot change earlier outputs, and theirs are not read
        padded = features.new_zeros(longest, len(first_rows), features.shape[-1])
        padded[place, segment] = features
        initial = forgotten(tuple(part[first_rows] for part in states), is_first[first_rows])
        latent, _ = self.cells(padded, self._packed(initial))
        return cast("Tensor", latent[place, segment])

    def _packed(self, state: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        """Convert the state to torch's layout: [layers, B, H], a pair for an LSTM."""
        # cells need contiguous states; records have the environment as their first axis
        parts = tuple(part.transpose(0, 1).contiguous() for part in state)
        return parts if self.parts == 2 else parts[0]

    def _unpacked(self, state: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        parts = state if isinstance(state, tuple) else (state,)
        return tuple(part.transpose(0, 1) for part in parts)


def build_memory(kind: str | None, inputs: int, hidden: int, layers: int, arguments: Mapping[str, Any]) -> nn.Module:
    """Build a memory by name (`lstm`, `gru`); for None, one without state."""
    return NoMemory(inputs) if kind is None else RecurrentMemory(kind, inputs, hidden, layers, arguments)


METHODS = ("initial", "step", "sequence")
TOLERANCE = 1e-4


def forgotten(state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, ...]:
    """Return a memory's state, tensors [B, ..], with zeros in rows where an episode begins, `is_first` bool [B]."""
    return tuple(part.masked_fill(is_first.view(-1, *[1] * (part.ndim - 1)), 0.0) for part in state)


def sequence_by_steps(
    memory: Memory, features: Tensor, states: tuple[Tensor, ...], is_first: Tensor, starts: Tensor
) -> Tensor:
    """Compute `Memory.sequence` with calls of `step`: latents [N, H]. All segments advance in parallel, step by step.

    Args:
        memory: the memory whose `step` is called.
        features: float [N, F] of steps in order.
        states: the state before each step, tensors [N, ..].
        is_first: bool [N], True where an episode begins.
        starts: bool [N], True where a segment begins.
    """
    begins = starts.clone()
    begins[0] = True
    first_rows, segment, place = segments_of(begins)
    shape = (int(place.max()) + 1, len(first_rows))
    padded, first = features.new_zeros(*shape, features.shape[-1]), is_first.new_zeros(shape)
    padded[place, segment], first[place, segment] = features, is_first
    state, found = tuple(part[first_rows] for part in states), []
    for t in range(shape[0]):
        latent, state = memory.step(padded[t], state, first[t])
        found.append(latent)
    return torch.stack(found)[place, segment]


def own_memory(algorithm: str, inputs: int, networks: RecurrentConfig) -> nn.Module:
    """Build a memory of the user's class `memory_class`, for `inputs` features.

    Raises:
        SettingsError: the class raises an error, takes other arguments or lacks a method, or its output is not finite
            or has another shape.
    """
    assert networks.memory_class is not None
    user = UserClass(algorithm, "memory_class", networks.memory_class, networks.memory_kwargs)
    memory = user.build(features_dim=inputs)
    missing = [method for method in METHODS if not callable(getattr(memory, method, None))]
    if missing or not isinstance(getattr(memory, "features_dim", None), int):
        raise SettingsError(
            f"{user} must have an int `features_dim`, the width of its latents, and methods {', '.join(METHODS)}; see"
            " rlsdk.networks.Memory"
        )
    _require_fit(user, memory, inputs)
    return memory


@torch.no_grad()
def _require_fit(user: UserClass, memory: nn.Module, inputs: int) -> None:
    """Check that three steps of one episode give the same latents as one sequence."""
    # dropout would make equal inputs differ
    training, module = memory.training, cast("Memory", memory.eval())
    try:
        with user.errors(f"{user} failed on features [1, {inputs}]", "see rlsdk.networks.Memory"):
            stepped, whole = _both_ways(module, inputs)
    finally:
        memory.train(training)
    for what, found in (("step", stepped), ("sequence", whole)):
        if found.shape != (3, module.features_dim):
            raise SettingsError(
                f"{user}: {what} gave {list(found.shape)} for 3 steps; expected [3, {module.features_dim}], features_dim wide"
            )
        if not bool(found.isfinite().all()):
            raise SettingsError(
                f"{user}: {what} gave numbers that are not finite; check its initial weights and `initial`"
            )
    # a memory that learns another function than it acts with trains without an error, and badly
    if not torch.allclose(stepped, whole, atol=TOLERANCE):
        raise SettingsError(
            f"{user}: sequence gives other latents than step, one after another; return"
            " rlsdk.networks.sequence_by_steps(self, features, states, is_first, starts) if in doubt"
        )


def _both_ways(memory: Memory, inputs: int) -> tuple[Tensor, Tensor]:
    """The latents [3, H] of three steps: computed one by one, and as a sequence."""
    # fixed numbers: drawing some would change the random numbers of the networks that follow
    features = torch.linspace(-1.0, 1.0, 3 * inputs).view(3, inputs)
    first = torch.tensor([True, False, False])
    state = memory.initial(1)
    before, latents = [], []
    for t in range(3):
        before.append(state)
        latent, state = memory.step(features[t : t + 1], state, first[t : t + 1])
        latents.append(latent)
    states = tuple(torch.cat(parts) for parts in zip(*before, strict=True))
    return torch.cat(latents), memory.sequence(features, states, first, first)
