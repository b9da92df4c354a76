"""LSTM and GRU memories: they process one step at a time for acting, and whole sequences for learning.

For learning, the steps are divided into segments, padded and processed in parallel in one call, without a Python loop
over time steps. Only the start of a segment can reset the state. The results therefore equal those of single steps (a
test compares them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError, suggest
from rlsdk.math.segments import segments_of

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
        result: Tensor = self.linear(features)
        return result


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
        if self.cells.bidirectional or self.cells.batch_first or self.cells.proj_size:
            raise SettingsError("lstm_kwargs: bidirectional, batch_first and proj_size are not possible while acting")
        self.parts, self.features_dim = (2 if kind == "lstm" else 1), hidden

    def initial(self, batch: int) -> tuple[Tensor, ...]:
        shape = (batch, self.cells.num_layers, self.cells.hidden_size)
        device = next(self.cells.parameters()).device
        return tuple(torch.zeros(shape, device=device) for _ in range(self.parts))

    def step(self, features: Tensor, state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        masked = _forgotten(state, is_first)
        latent, following = self.cells(features.unsqueeze(0), self._packed(masked))
        return latent.squeeze(0), self._unpacked(following)

    def sequence(self, features: Tensor, states: tuple[Tensor, ...], is_first: Tensor, starts: Tensor) -> Tensor:
        begins = starts.clone()
        begins[0] = True
        first_rows, segment, place = segments_of(begins)
        longest = int(place.max()) + 1
        padded = features.new_zeros(longest, len(first_rows), features.shape[-1])
        padded[place, segment] = features
        initial = _forgotten(tuple(part[first_rows] for part in states), is_first[first_rows])
        latent, _ = self.cells(padded, self._packed(initial))
        result: Tensor = latent[place, segment]
        return result

    def _packed(self, state: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        """Convert the state to torch's layout: [layers, B, H], a pair for an LSTM."""
        parts = tuple(part.transpose(0, 1).contiguous() for part in state)
        return parts if self.parts == 2 else parts[0]

    def _unpacked(self, state: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        parts = state if isinstance(state, tuple) else (state,)
        return tuple(part.transpose(0, 1) for part in parts)


def _forgotten(state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, ...]:
    return tuple(part.masked_fill(is_first.view(-1, 1, 1), 0.0) for part in state)


def build_memory(kind: str | None, inputs: int, hidden: int, layers: int, arguments: Mapping[str, Any]) -> nn.Module:
    """Build a memory by name (`lstm`, `gru`); for None, one without state."""
    return NoMemory(inputs) if kind is None else RecurrentMemory(kind, inputs, hidden, layers, arguments)
