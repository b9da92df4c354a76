"""An actor-critic network of plain dense layers as two stacks that are run by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from rlsdk.engines import Library, Stack, fits
from rlsdk.memories import NoMemory
from rlsdk.networks.action_heads import PLAIN
from rlsdk.networks.combined_encoder import CombinedEncoder
from rlsdk.networks.draws import DRAWS, Draw
from rlsdk.networks.encoders import FlattenEncoder
from rlsdk.spaces import Box, dtype_of

if TYPE_CHECKING:
    from rlsdk.networks.actor_critic import ActorCritic


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """What stands on the encoder, which has no parameters: hidden layers and the last linear layer of either side."""

    head: Any
    actor: Stack
    critic: Stack
    draw: Draw | None
    """Samples in numpy; None where the head's distribution has to."""
    vectors: bool
    """Whether the encoder only passes float32 vectors on."""


def sides_of(network: ActorCritic, library: Library) -> Sides | None:
    """The two stacks, or None where the network has something else in it: a memory, convolutions, unknown modules, noise
    that depends on the state. Encoders without parameters are the same function for both sides."""
    encoders = [part for part in (network.encoder, network.critic_encoder) if part is not None]
    if type(network.head) not in PLAIN or not all(map(_is_plain, encoders)):
        return None
    if type(network.memory) is not NoMemory or type(network.critic_memory) is not NoMemory:
        return None
    actor = [*cast("nn.Sequential", network.body), cast("Any", network.head).linear]
    critic = [*cast("nn.Sequential", network.critic_body), network.value]
    if not fits(actor) or not fits(critic):
        return None
    actor_stack, critic_stack = Stack(actor, library), Stack(critic, library)
    draw_for, vectors = DRAWS.get(type(network.head)), _is_identity(network.encoder)
    return Sides(network.head, actor_stack, critic_stack, draw_for and draw_for(network.head), vectors)


def _is_plain(encoder: nn.Module) -> bool:
    return type(encoder) in (FlattenEncoder, CombinedEncoder) and not list(encoder.parameters())


def _is_identity(encoder: nn.Module) -> bool:
    space = getattr(encoder, "space", None)
    return (
        type(encoder) is FlattenEncoder
        and isinstance(space, Box)
        and dtype_of(space) == "float32"
        and len(space.shape) == 1
    )
