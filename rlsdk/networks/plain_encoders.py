"""Which encoders kernels need not call, or may call once for actor and critic."""

from __future__ import annotations

from torch import nn

from rlsdk.kernels.protocol import has_parameters
from rlsdk.networks.combined_encoder import CombinedEncoder
from rlsdk.networks.encoders import FlattenEncoder
from rlsdk.spaces import Box, dtype_of


def is_fixed(encoder: nn.Module) -> bool:
    """Whether an encoder has no parameters, and so is the same function as another of its space."""
    return type(encoder) in (FlattenEncoder, CombinedEncoder) and not has_parameters(encoder)


def is_identity(encoder: nn.Module) -> bool:
    """Whether an encoder only passes float32 vectors [N, F] on."""
    space = getattr(encoder, "space", None)
    flat = type(encoder) is FlattenEncoder and isinstance(space, Box) and dtype_of(space) == "float32"
    return flat and isinstance(space, Box) and len(space.shape) == 1
