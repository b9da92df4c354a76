"""Detects encoders that kernels need not call, or need to call only once for actor and critic."""

from __future__ import annotations

from torch import nn

from rlsdk.kernels.protocol import has_parameters
from rlsdk.networks.combined_encoder import CombinedEncoder
from rlsdk.networks.encoders import FlattenEncoder
from rlsdk.spaces import Box, dtype_of


def is_fixed(encoder: nn.Module) -> bool:
    """Whether an encoder has no parameters, so that it equals every other encoder of its space."""
    return type(encoder) in (FlattenEncoder, CombinedEncoder) and not has_parameters(encoder)


def is_identity(encoder: nn.Module) -> bool:
    """Whether an encoder returns float32 vectors [N, F] unchanged."""
    space = getattr(encoder, "space", None)
    flat = type(encoder) is FlattenEncoder and isinstance(space, Box) and dtype_of(space) == "float32"
    return flat and isinstance(space, Box) and len(space.shape) == 1
