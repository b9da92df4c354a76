"""Parameters in one flat buffer with named views: one optimiser call, one norm, one interpolation for a whole network."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def views_of(flat: Tensor, parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Pieces of a vector [D] shaped as the parameters are, end to end in their order."""
    chosen = list(parameters)
    pieces = torch.split(flat, [parameter.numel() for parameter in chosen])
    return [piece.view(parameter.shape) for piece, parameter in zip(pieces, chosen, strict=True)]


def flatten_parameters(parameters: Iterable[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Move the parameters, and their gradients, into two flat float buffers [D]; returns (values, gradients).

    The parameters become views: `load_state_dict`, `state_dict` and autograd work on them as before, and `backward`
    accumulates into the gradient buffer. Contiguous views also keep clear of torch's fused Adam on CPU computing wrong
    updates when a gradient's strides differ from its parameter's.
    """
    chosen = list(parameters)
    if not chosen:
        return torch.zeros(0), torch.zeros(0)
    values = torch.cat([p.detach().reshape(-1) for p in chosen])
    gradients = torch.zeros_like(values)
    start = 0
    for parameter in chosen:
        end = start + parameter.numel()
        parameter.data = values[start:end].view(parameter.shape)
        parameter.grad = gradients[start:end].view(parameter.shape)
        start = end
    return values, gradients
