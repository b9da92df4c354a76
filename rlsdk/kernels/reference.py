"""What torch's modules and autograd compute: every kernel gives the same. Used where no kernel fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Pair = tuple[Tensor, Tensor]


class Autograd:
    """A function [N, I] -> [.., N, O] of a network's parameters."""

    name = "autograd"

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def evaluate(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """See `rlsdk.kernels.protocol.Kernel`; inputs [N, I] may have a graph, which `vjp` goes through."""
        outputs = self.function(inputs)
        return outputs.detach(), lambda grad: backward((outputs,), (grad,))

    def evaluate_inputs(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See `rlsdk.kernels.protocol.DenseNetwork`; inputs [N, I]."""
        leaf = inputs.detach().requires_grad_()
        with torch.enable_grad():
            outputs = self.function(leaf)
        return outputs.detach(), lambda grad: torch.autograd.grad(outputs, leaf, grad)[0]

    def outputs_of_several(self, inputs: Tensor, count: int) -> None:
        """See `rlsdk.kernels.protocol.DenseNetwork`."""


class AutogradPair:
    """A function of two tensors and a network's parameters that gives two."""

    name = "autograd"

    def __init__(self, function: Callable[[Pair], Pair]) -> None:
        self.function = function

    def evaluate(self, inputs: Pair) -> tuple[Pair, Callable[[Tensor, Tensor], None]]:
        """See `rlsdk.kernels.protocol.Kernel`; a pair of inputs [N, ..] may have a graph, which `vjp` goes through."""
        first, second = self.function(inputs)
        return (first.detach(), second.detach()), lambda *grads: backward((first, second), grads)


def backward(outputs: tuple[Tensor, ...], grads: tuple[Tensor | None, ...], *, retain_graph: bool = False) -> None:
    """`torch.autograd.backward` of outputs [..] that require a gradient and have one in `grads` [..] (None: skipped)."""
    pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None]
    trained = [(output, grad) for output, grad in pairs if output.requires_grad]
    if trained:
        torch.autograd.backward([o for o, _ in trained], [g for _, g in trained], retain_graph=retain_graph)


@contextmanager
def seeded_draws(seed: int) -> Iterator[None]:
    """Inside the block, torch's global generator is another one, of this seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def sequential(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """What modules give one after another, [N, I] -> [N, O]."""
    for module in modules:
        x = module(x)
    return x


def pairwise_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """(sum_ij w e over all rows, 0-d; sum_j w, [.., N, K]) with d = y_j - z_i, c = clamp(d, -1, 1), e = d - c / 2 and
    w = (c + asymmetry_i |c|) times the row's weight.

    Args:
        current: z, float [.., N, K].
        target: y, float [N, M], or with the dimensions in front that `current` has.
        asymmetry: 2 tau - 1 of quantiles tau in (0, 1), float [K].
        weight: float [N]; None = 1.
    """
    excess = target.unsqueeze(-2) - current.unsqueeze(-1)
    clipped = excess.clamp(-1.0, 1.0)
    grad = clipped + asymmetry.unsqueeze(-1) * clipped.abs()
    if weight is not None:
        grad = grad * weight[:, None, None]
    return (grad * (excess - 0.5 * clipped)).sum(), grad.sum(-1)
