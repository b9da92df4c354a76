"""The reference of all kernels: torch's modules and autograd. It is also used where no kernel fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from math import inf, isfinite
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rlsdk.errors import DivergenceError
from rlsdk.records import StepData

Pair = tuple[Tensor, Tensor]
Advantages = tuple[Tensor, Tensor, bool]
"""Advantages and regression targets of values, float [B * T] each, and whether all steps are valid."""
FEW = 16
"""Up to this number of environments, a loop over Python floats is faster than a loop over small tensors."""
# The margin of torch's own `clip_grad_norm_`.
_ONE, _MARGIN = np.float32(1.0), np.float32(1e-6)


class Autograd:
    """Evaluates a function [N, I] -> [.., N, O] that depends on a network's parameters."""

    name = "autograd"

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def evaluate(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """See `rlsdk.kernels.protocol.Kernel`. If the inputs [N, I] have a graph, `vjp` also backpropagates through it."""
        outputs = self.function(inputs)
        return outputs.detach(), lambda grad: backward((outputs,), (grad,))

    def evaluate_inputs(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See `rlsdk.kernels.protocol.DenseNetwork`; inputs [N, I]."""
        leaf = inputs.detach().requires_grad_()
        # Callers may have turned gradients off; this one is needed.
        with torch.enable_grad():
            outputs = self.function(leaf)
        return outputs.detach(), lambda grad: torch.autograd.grad(outputs, leaf, grad)[0]

    def outputs_of_several(self, inputs: Tensor, count: int) -> None:
        """Return None, see `rlsdk.kernels.protocol.DenseNetwork`."""


class AutogradPair:
    """Evaluates a function that depends on a network's parameters, with two tensors as input and two as output."""

    name = "autograd"

    def __init__(self, function: Callable[[Pair], Pair]) -> None:
        self.function = function

    def evaluate(self, inputs: Pair) -> tuple[Pair, Callable[[Tensor, Tensor], None]]:
        """See `rlsdk.kernels.protocol.Kernel`. If the two inputs [N, ..] have a graph, `vjp` also backpropagates through it."""
        first, second = self.function(inputs)
        return (first.detach(), second.detach()), lambda *grads: backward((first, second), grads)


def backward(outputs: tuple[Tensor, ...], grads: tuple[Tensor | None, ...], *, retain_graph: bool = False) -> None:
    """Call `torch.autograd.backward` for the outputs [..] that require a gradient and whose entry in `grads` is not None."""
    pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None]
    trained = [(output, grad) for output, grad in pairs if output.requires_grad]
    if trained:
        torch.autograd.backward([o for o, _ in trained], [g for _, g in trained], retain_graph=retain_graph)


def is_transformed() -> bool:
    """Whether torch compiles or exports the function, or differentiates it with `torch.func` or in forward mode.

    Torch then needs its own layers. Also True if this version of torch does not report it.
    """
    if torch.compiler.is_compiling():
        return True
    try:
        return (
            torch._C._get_tracing_state() is not None
            or torch._C._functorch.maybe_current_level() is not None
            or forward_ad._current_level >= 0
        )
    except AttributeError:
        return True


def require_choice(scores: Tensor, mask: Tensor | None = None) -> None:
    """Check that the largest of the `scores` [.., n] of a choice is a number, so that a diverged policy does not act.

    `mask` is bool [.., n] or None; scores of forbidden values, and rows without an allowed value, are not examined. Neither are
    scores on an accelerator, for which the program would have to wait.

    Raises:
        DivergenceError: the largest score is NaN or infinite.
    """
    if not scores.is_cpu or torch.compiler.is_compiling():
        return
    try:
        array = scores.detach().numpy() if scores.requires_grad else scores.numpy()
        if isfinite(np.vdot(array, array)):
            # then all numbers are finite; if it is not, it may only have overflowed
            return
    except (RuntimeError, TypeError):
        # numpy has no such numbers (bfloat16), or torch transforms the function
        if is_transformed():
            return
    allowed = scores if mask is None else scores.masked_fill(~mask, -inf)
    wrong = ~allowed.amax(-1).isfinite()
    if bool((wrong if mask is None else wrong & mask.any(-1)).any()):
        raise no_choice()


def no_choice() -> DivergenceError:
    """Return the error for a policy whose outputs do not determine an action."""
    return DivergenceError(
        "the policy cannot choose an action: its outputs are not finite; its weights have diverged. Lower learning_rate or"
        " max_grad_norm, or load a checkpoint from before"
    )


def sequential(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Call modules one after another, [N, I] -> [N, O]."""
    for module in modules:
        x = module(x)
    return x


def pairwise_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (the sum of w e over all pairs i, j and all rows, 0-d; the sum of w over j, [.., N, K]).

    For each pair, d = y_j - z_i, c = clamp(d, -1, 1) and e = d - c / 2. The weight w of the pair is (c + asymmetry_i
    |c|) times the weight of the row.

    Args:
        current: z, float [.., N, K].
        target: y, float [N, M], or with the same leading dimensions as `current`.
        asymmetry: 2 tau - 1 of quantiles tau in (0, 1), float [K].
        weight: float [N]; None = 1.
    """
    excess = target.unsqueeze(-2) - current.unsqueeze(-1)
    clipped = excess.clamp(-1.0, 1.0)
    grad = clipped + asymmetry.unsqueeze(-1) * clipped.abs()
    if weight is not None:
        grad = grad * weight[:, None, None]
    return (grad * (excess - 0.5 * clipped)).sum(), grad.sum(-1)


def clip_norm(gradients: Tensor, max_norm: float) -> None:
    """Scale a gradient vector [D] down to the norm `max_norm`, in place."""
    norm = torch.linalg.vector_norm(gradients)
    if gradients.is_cpu and gradients.dtype is torch.float32:
        # the same rounding as below
        scale = _ONE / (np.float32(norm.item()) + _MARGIN) * np.float32(max_norm)
        if not scale >= _ONE:
            # also if NaN
            values = gradients.numpy()
            # takes half the time of torch's product
            np.multiply(values, scale, values)
    else:
        # without reading the norm, which would wait for the device
        gradients.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """The sums S_t = value_t + weight_t S_{t+1}, computed backwards from S_T = 0; all float [T, B]."""
    if value.shape[1] <= FEW and value.is_cpu:
        columns = zip(value.numpy(force=True).T.tolist(), weight.numpy(force=True).T.tolist(), strict=True)
        return value.new_tensor([_sums_of_column(*column) for column in columns]).T
    sums = torch.empty_like(value)
    following = torch.zeros_like(value[0])
    rows = list(zip(value.unbind(0), weight.unbind(0), sums.unbind(0), strict=True))
    for own, share, target in reversed(rows):
        following = torch.addcmul(own, share, following, out=target)
    return sums


def advantages(steps: StepData[Any], value: Tensor, next_value: Tensor, gamma: float, lam: float) -> Advantages:
    """Return (advantages [B * T], targets [B * T], a flag); see `rlsdk.kernels.factory.advantages`."""
    # flags are combined in numpy: its calls take a third of the time of torch's, which matters for short rollouts
    terminated, truncated, valid = (f.numpy(force=True) for f in (steps.terminated, steps.truncated, steps.valid))
    ended, whole = terminated | truncated, bool(np.logical_and.reduce(valid, None))
    # the last row has no successor, so the value that `roll` puts there has no effect
    cut = ended if whole else ended | ~valid | ~np.roll(valid, -1, 0)
    factors = np.float32(gamma) * ~terminated, np.float32(gamma * lam) * ~cut
    discount, trace = (torch.from_numpy(factor).to(value.device) for factor in factors)
    advantage = discounted_sums(torch.addcmul(steps.reward, discount, next_value).sub_(value), trace)
    return advantage.T.flatten(), (advantage + value).T.flatten(), whole


def _sums_of_column(value: list[float], weight: list[float]) -> list[float]:
    """`discounted_sums` for one environment."""
    following, sums = 0.0, [0.0] * len(value)
    for t in reversed(range(len(value))):
        sums[t] = following = value[t] + weight[t] * following
    return sums


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """1 - Var(target - prediction) / Var(target), 0-d, for arguments float [N].

    1 is a perfect prediction, 0 is as good as predicting the mean. If the target is constant, the result is 0.
    """
    # Both in one transfer from the device.
    spread, rest = torch.stack((target, target - prediction)).var(1, correction=0).tolist()
    return number_like(target, 1.0 - rest / spread if spread > 0.0 else 0.0)


def number_like(like: Tensor, value: float) -> Tensor:
    """A number as a tensor, 0-d, with the dtype of `like`. One that is too large for it is infinite, as in a computation."""
    try:
        return like.new_full((), value)
    except RuntimeError:
        # torch raises an error for such a number
        return like.new_full((), math.copysign(math.inf, value))


class Differentiable(Protocol):
    """Layers, [N, I] -> [N, O]."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """Return the outputs for inputs [N, I]. If autograd is on, they have a graph."""

    def evaluate(self, x: Tensor, /) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
        """See `rlsdk.networks.Layers.evaluate`; inputs [N, I]."""


class TorchLayers:
    """Calls the modules of layers; see `Differentiable`."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def __call__(self, x: Tensor) -> Tensor:
        """See `Differentiable`; inputs [N, I]."""
        return self.function(x)

    def evaluate(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
        """See `Differentiable`; inputs [N, I]."""
        leaf = x.detach().requires_grad_(x.requires_grad)
        with torch.enable_grad():
            outputs = self.function(leaf)

        def vjp(grad: Tensor) -> Tensor | None:
            backward((outputs,), (grad,))
            return leaf.grad

        return outputs.detach(), vjp
