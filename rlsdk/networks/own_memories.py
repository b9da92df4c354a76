"""Memories of users in recurrent policies: made, checked, and helped over whole sequences."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError
from rlsdk.math.segments import segments_of
from rlsdk.networks.recurrent import LinearMemory, Memory
from rlsdk.settings.actor_critic import RecurrentConfig

METHODS = ("initial", "step", "sequence")
TOLERANCE = 1e-4


def forgotten(state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, ...]:
    """A memory's state, tensors [B, ..], with zeros in rows whose episodes are about to start, `is_first` bool [B]."""
    return tuple(part.masked_fill(is_first.view(-1, *[1] * (part.dim() - 1)), 0.0) for part in state)


def sequence_by_steps(
    memory: Memory, features: Tensor, states: tuple[Tensor, ...], is_first: Tensor, starts: Tensor
) -> Tensor:
    """`Memory.sequence` for a memory that has `step` alone: latents [N, H], segments side by side, one step after another.

    Args:
        memory: whose `step` is called.
        features: float [N, F] of steps in order.
        states: before each step, tensors [N, ..].
        is_first: bool [N].
        starts: bool [N], where a segment begins.
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


def own_memories(inputs: int, networks: RecurrentConfig) -> tuple[nn.Module, nn.Module | None, int]:
    """(actor's memory, critic's memory or None for the actor's, width of what comes out), of the user's class.

    Raises:
        SettingsError: it takes other arguments, lacks a method, or what it gives has another shape.
    """
    actor = _own_memory(inputs, networks)
    width = cast("Memory", actor).features_dim
    if networks.shared_lstm:
        return actor, None, width
    critic = _own_memory(inputs, networks) if networks.enable_critic_lstm else LinearMemory(inputs, width)
    return actor, critic, width


def _own_memory(inputs: int, networks: RecurrentConfig) -> nn.Module:
    kind, arguments = networks.memory_class, networks.memory_kwargs
    name = f"policy_kwargs.memory_class {getattr(kind, '__name__', repr(kind))}"
    try:
        memory = kind(inputs, **arguments)
    except TypeError as error:
        raise SettingsError(
            f"{name} cannot be made: {error}; it is called with (features_dim,) and memory_kwargs {dict(arguments)}"
        ) from error
    missing = [method for method in METHODS if not callable(getattr(memory, method, None))]
    if not isinstance(memory, nn.Module) or missing or not isinstance(getattr(memory, "features_dim", None), int):
        raise SettingsError(
            f"{name} must be a torch.nn.Module with an int `features_dim`, the width of what it gives, and methods"
            f" {', '.join(METHODS)}; see rlsdk.networks.Memory"
        )
    _require_fit(memory, inputs, name)
    return memory


@torch.no_grad()
def _require_fit(memory: nn.Module, inputs: int, name: str) -> None:
    """Three steps of one episode, and the same as a sequence."""
    training, module = memory.training, cast("Memory", memory.eval())
    features = torch.linspace(-1.0, 1.0, 3 * inputs).view(3, inputs)
    first = torch.tensor([True, False, False])
    try:
        state = module.initial(1)
        before, latents = [], []
        for t in range(3):
            before.append(state)
            latent, state = module.step(features[t : t + 1], state, first[t : t + 1])
            latents.append(latent)
        states = tuple(torch.cat(parts) for parts in zip(*before, strict=True))
        stepped, whole = torch.cat(latents), module.sequence(features, states, first, first)
    except Exception as error:  # a user's code may raise anything
        raise SettingsError(f"{name} failed on features [1, {inputs}]: {error}; see rlsdk.networks.Memory") from error
    finally:
        memory.train(training)
    for what, found in (("step", stepped), ("sequence", whole)):
        if found.shape != (3, module.features_dim):
            raise SettingsError(
                f"{name}: {what} gave {list(found.shape)} for 3 steps; expected [3, {module.features_dim}], features_dim wide"
            )
    if not torch.allclose(stepped, whole, atol=TOLERANCE):
        raise SettingsError(
            f"{name}: sequence gives other latents than step, one after another; return"
            " rlsdk.networks.sequence_by_steps(self, features, states, is_first, starts) if in doubt"
        )
