"""Random initial weights that depend on the agent's seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from rlsdk.kernels import seeded_draws
from rlsdk.runtime.seeding import derive
from rlsdk.runtime.threads import limited_threads


@contextmanager
def initialisation(seed: int) -> Iterator[None]:
    """Networks built inside the block get their random weights from `seed`; random numbers of other threads do not matter.

    torch's global generator is neither read nor written, and gradient and inference modes of the caller do not count.
    One thread: with two, the QR decomposition of a matrix of 256 x 256 takes 380 ms instead of 2 ms where another program
    uses the second core.
    """
    draws = seeded_draws(derive(seed, "initialisation"))
    with torch.inference_mode(False), torch.enable_grad(), limited_threads(1), draws:
        yield


@torch.no_grad()
def orthogonal(part: nn.Module, gain: float) -> None:
    """Orthogonal weights and zero biases of linear layers and convolutions; other modules keep their initial weights."""
    for module in part.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(module.weight, gain)
            if module.bias is not None:
                module.bias.zero_()
