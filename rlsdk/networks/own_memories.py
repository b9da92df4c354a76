"""Builds and checks users' memories for recurrent policies, and helps to write one."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError
from rlsdk.math.segments import segments_of
from rlsdk.networks.recurrent import LinearMemory, Memory
from rlsdk.networks.user_classes import UserClass
from rlsdk.settings.actor_critic import RecurrentConfig

METHODS = ("initial", "step", "sequence")
TOLERANCE = 1e-4


def forgotten(state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, ...]:
    """Return a memory's state, tensors [B, ..], with zeros in rows where an episode begins, `is_first` bool [B]."""
    return tuple(part.masked_fill(is_first.view(-1, *[1] * (part.dim() - 1)), 0.0) for part in state)


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


def own_memories(algorithm: str, inputs: int, networks: RecurrentConfig) -> tuple[nn.Module, nn.Module | None, int]:
    """Build (memory of the actor, memory of the critic or None if it uses the actor's, width of their latents).

    The memories are of the user's class. Without a memory, the critic has a linear layer.

    Raises:
        SettingsError: the class raises an error, takes other arguments or lacks a method, or its output is not finite
            or has another shape.
    """
    actor = _own_memory(algorithm, inputs, networks)
    width = cast("Memory", actor).features_dim
    if networks.shared_lstm:
        return actor, None, width
    critic = _own_memory(algorithm, inputs, networks) if networks.enable_critic_lstm else LinearMemory(inputs, width)
    return actor, critic, width


def _own_memory(algorithm: str, inputs: int, networks: RecurrentConfig) -> nn.Module:
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
    if not torch.allclose(stepped, whole, atol=TOLERANCE):
        raise SettingsError(
            f"{user}: sequence gives other latents than step, one after another; return"
            " rlsdk.networks.sequence_by_steps(self, features, states, is_first, starts) if in doubt"
        )


def _both_ways(memory: Memory, inputs: int) -> tuple[Tensor, Tensor]:
    """The latents [3, H] of three steps: computed one by one, and as a sequence."""
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
