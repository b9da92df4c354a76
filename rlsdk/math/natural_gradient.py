"""Solving A x = b with products A v only, and flat gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, max_iter: int = 10, residual_tol: float = 1e-10
) -> Tensor:
    """An x with A x close to b, for a symmetric positive definite A given by `product(v)` = A v.

    Source: Hestenes, Stiefel 1952. Stops when the squared residual is below `residual_tol`, after `max_iter` products, or
    where A turns out not to be positive definite along a direction (the x reached so far is returned).

    Args:
        product: float [D] -> float [D].
        b: right-hand side, float [D].
        max_iter: products at most.
        residual_tol: squared norm of b - A x that is good enough.
    """
    x, residual = torch.zeros_like(b), b.clone()
    direction, size = b.clone(), float(b.dot(b))
    for _ in range(max_iter):
        if size < residual_tol:
            break
        along = product(direction)
        curvature = float(direction.dot(along))
        if not curvature > 0.0:  # also when it is NaN
            break
        step = size / curvature
        x.add_(direction, alpha=step)
        residual.sub_(along, alpha=step)
        following = float(residual.dot(residual))
        direction.mul_(following / size).add_(residual)
        size = following
    return x


def flat_grad(
    output: Tensor, parameters: Iterable[nn.Parameter], create_graph: bool = False, retain_graph: bool = False
) -> Tensor:
    """The gradient of a 0-d `output` with respect to `parameters`, end to end, float [D]; zeros where it does not
    depend, or where a parameter is frozen."""
    wanted = list(parameters)
    asked = [parameter for parameter in wanted if parameter.requires_grad] if output.requires_grad else []
    parts = (
        torch.autograd.grad(
            output, asked, create_graph=create_graph, retain_graph=retain_graph or create_graph, allow_unused=True
        )
        if asked
        else ()
    )
    known = dict(zip(map(id, asked), parts, strict=True))
    found = [known.get(id(parameter)) for parameter in wanted]
    return torch.cat(
        [torch.zeros_like(p).reshape(-1) if g is None else g.reshape(-1) for p, g in zip(wanted, found, strict=True)]
    )
