"""The parts of natural gradients: a solver of A x = b that needs only products A v, and gradients as one vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, max_iter: int = 10, residual_tol: float = 1e-10
) -> Tensor:
    """An x with A x close to b, for a symmetric positive definite A given by `product(v)` = A v.

    Source: Hestenes, Stiefel 1952. The solver stops when the squared residual is below `residual_tol`, or after `max_iter`
    products. It also stops, and returns the current x, when A is not positive definite along a search direction.

    Args:
        product: the function v -> A v, float [D] -> float [D].
        b: right-hand side, float [D].
        max_iter: the largest number of products.
        residual_tol: the squared norm of b - A x below which the solver stops.
    """
    x, residual = torch.zeros_like(b), b.clone()
    direction, size = b.clone(), float(b.dot(b))
    for _ in range(max_iter):
        if size < residual_tol:
            break
        along = product(direction)
        curvature = float(direction.dot(along))
        if not curvature > 0.0:  # this is also True for NaN
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
    """The gradient of a 0-d `output` with respect to all `parameters`, concatenated to one vector, float [D].

    The gradient is 0 for a parameter that is frozen, or that `output` does not depend on.
    """
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
