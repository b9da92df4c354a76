"""Losses, computed by the fastest kernel."""

from __future__ import annotations

from torch import Tensor

from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.table import offered


def pairwise_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (sum, 0-d; gradients [.., N, K]); see `rlsdk.kernels.reference.pairwise_huber`."""
    found: tuple[Tensor, Tensor] = (offered("pairwise_huber") or by_torch.pairwise_huber)(
        current, target, asymmetry, weight
    )
    return found
