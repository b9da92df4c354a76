"""Running averages of the blocks of a network's Fisher information.

Sources: Martens, Grosse 2015, arXiv:1503.05671 (dense layers); Grosse, Martens 2016, arXiv:1602.01407 (convolutions).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, unfold

from rlsdk import tree
from rlsdk.errors import DivergenceError
from rlsdk.interfaces import State
from rlsdk.runtime import count_in, stored_like
from rlsdk_acktr.recording import Layer


class Averages:
    """Running averages of tensors over updates. The first updates have equal weights; later, weights fall by the factor
    `decay` per update (arXiv:1503.05671, section 5)."""

    def __init__(self, *blank: Tensor) -> None:
        """`blank`: zeros in the shapes of the averages, then of further tensors that are stored with them."""
        self.tensors, self.count = blank, 0

    def add(self, decay: float, *found: Tensor) -> None:
        self.count += 1
        keep = min(1.0 - 1.0 / self.count, decay)
        for own, new in zip(self.tensors, found, strict=False):
            own.lerp_(new, 1.0 - keep)

    def state_dict(self) -> State:
        return {"count": self.count, "tensors": tree.number(self.tensors)}

    def load_state_dict(self, state: State, /) -> None:
        """Raises ValueError: `state` does not fit these tensors."""
        self.count, self.tensors = count_in(state, "count"), stored_like(self.tensors, state["tensors"])

    def clear(self) -> None:
        """Reset to zero observations."""
        self.load_state_dict({"count": 0, "tensors": tree.number(tuple(map(torch.zeros_like, self.tensors)))})


class KroneckerBlock(Averages):
    """A layer's Fisher information as the Kronecker product A x G.

    A is the mean product of its inputs, with an input 1 for the bias. G is that of the gradients of its outputs. The positions
    of a convolution, and several calls in one evaluation, count as independent samples.
    """

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        outputs, inputs = layer.weight.flatten(1).shape
        inputs += layer.bias is not None
        new = layer.weight.new_zeros
        squares = new(inputs, inputs), new(outputs, outputs)
        super().__init__(*squares, new(inputs), new(inputs, inputs), new(outputs), new(outputs, outputs))
        self.is_decomposed = False

    def observe(self, uses: Sequence[tuple[Tensor, Tensor]], weight: Tensor | None, rows: int, decay: float) -> None:
        """Add the factors of one batch to the averages.

        Args:
            uses: (inputs, gradients of the rows' log-likelihoods with respect to outputs) for each call of the layer.
            weight: float [rows], 0 for rows that do not count; None where all do.
            rows: number of rows of the batch.
            decay: see `Averages`.
        """
        inputs = torch.cat([self._inputs(x) for x, _ in uses])
        grads = torch.cat([self._outputs(grad) for _, grad in uses])
        places, counting = len(inputs) / rows, rows if weight is None else weight.sum()
        counted = inputs
        if weight is not None and len(inputs) % rows == 0:
            each = [weight.repeat_interleave(len(self._inputs(x)) // rows) for x, _ in uses]
            counted = inputs * torch.cat(each).unsqueeze(1)
        self.add(decay, counted.T @ inputs / (counting * places), grads.T @ grads / counting)

    def _inputs(self, x: Tensor) -> Tensor:
        """The inputs of each output, [samples, I], with a last column of ones if the layer has a bias."""
        layer = self.layer
        if isinstance(layer, nn.Conv2d):
            padding: Any = layer.padding  # not a string: see `layers_of`
            patches = unfold(x, layer.kernel_size, layer.dilation, padding, layer.stride)
            flat = patches.transpose(1, 2).flatten(0, 1)
        else:
            flat = x.flatten(0, -2)
        return flat if layer.bias is None else pad(flat, (0, 1), value=1.0)

    def _outputs(self, grad: Tensor) -> Tensor:
        """The gradients of outputs, as rows [samples, O]."""
        last = grad.flatten(2).transpose(1, 2) if isinstance(self.layer, nn.Conv2d) else grad
        return last.flatten(0, -2)

    def decompose(self) -> None:
        """Compute the eigenvalues and eigenvectors of the current factors A and G.

        Raises:
            DivergenceError: a factor is not finite.
        """
        for factor, values, vectors in (
            (self.tensors[0], self.tensors[2], self.tensors[3]),
            (self.tensors[1], self.tensors[4], self.tensors[5]),
        ):
            if not math.isfinite(factor.sum()):
                raise DivergenceError(
                    "training diverged: a layer's inputs or gradients are infinite or NaN; lower learning_rate or kfac_clip, or"
                    " normalize observations"
                )
            found = torch.linalg.eigh(factor.double())
            values.copy_(found.eigenvalues.clamp(min=0.0))
            vectors.copy_(found.eigenvectors)
        self.is_decomposed = True

    def precondition(self, damping: float, split: bool) -> None:
        """Replace the gradient of the layer's loss by (A x G + damping)^-1 times it."""
        weight, bias = self.layer.weight.grad, None if self.layer.bias is None else self.layer.bias.grad
        assert weight is not None
        grad = weight.flatten(1) if bias is None else torch.cat([weight.flatten(1), bias.unsqueeze(1)], 1)
        _, _, input_values, inputs, output_values, outputs = self.tensors
        rotated = outputs.T @ grad @ inputs / damped(input_values, output_values, damping, split)
        natural = outputs @ rotated @ inputs.T
        if bias is not None:
            bias.copy_(natural[:, -1])
            natural = natural[:, :-1]
        weight.copy_(natural.reshape(weight.shape))

    def load_state_dict(self, state: State, /) -> None:
        super().load_state_dict(state)
        self.is_decomposed = bool(self.tensors[3].any())


class DiagonalBlock(Averages):
    """The diagonal of the Fisher information for a parameter that belongs to no layer with Kronecker factors.

    Scores of different rows are independent, so the square of their sum estimates the sum of their squares.
    """

    def __init__(self, parameter: nn.Parameter) -> None:
        super().__init__(torch.zeros_like(parameter, requires_grad=False))
        self.parameter = parameter

    def observe(self, grad: Tensor, counting: Tensor, decay: float) -> None:
        """Add one batch of `counting` rows, 0-d, to the average. `grad`: the gradient of its summed log-likelihood."""
        self.add(decay, grad.square() / counting)

    def precondition(self, damping: float) -> None:
        """Divide the parameter's gradient by its Fisher information + damping."""
        assert self.parameter.grad is not None
        self.parameter.grad.div_(self.tensors[0] + damping)


def damped(inputs: Tensor, outputs: Tensor, damping: float, split: bool) -> Tensor:
    """Eigenvalues [O, I] of A x G + damping, given those of A, [I], and of G, [O].

    With `split` they are the eigenvalues of (A + p sqrt(damping)) x (G + sqrt(damping) / p), where p^2 is the ratio of the mean
    eigenvalues of A and G (arXiv:1503.05671, section 6.3).
    """
    if not split:
        return torch.outer(outputs, inputs) + damping
    ratio = (inputs.mean() / outputs.mean()).sqrt().nan_to_num(1.0, 1.0).clamp(1e-6, 1e6)
    root = damping**0.5
    return torch.outer(outputs + root / ratio, inputs + root * ratio)
