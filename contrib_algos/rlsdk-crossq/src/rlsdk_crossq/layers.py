"""Batch renormalization, and its place in the networks. Source: Ioffe 2017, arXiv:1702.03275."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rlsdk.networks import ContinuousCritics, OwnCritics, SquashedActor, features_dim
from rlsdk.settings import widths
from rlsdk_crossq.config import CrossQPolicyConfig

LARGEST_SCALE, LARGEST_SHIFT = 3.0, 5.0
"""Bounds of the correction r (from 1 / 3 to 3) and d (from -5 to 5), as in sb3-contrib."""
LEAST = 1e-12
"""The root of a smaller variance is that of this number, because the root of 0 has no finite gradient."""
ROUNDING = 1e-12
"""A variance below this share of the squared mean is a rounding error of float32: the feature is constant over the batch."""


class BatchRenorm(nn.Module):
    """Normalizes each of F features: [N, F] -> [N, F], or [C, N, F] -> [C, N, F] with own statistics of C critics.

    It uses running statistics. Inside `batch_statistics` it uses those of the batch, and moves the running ones towards
    them. After `warm_up` such passes, the result is corrected towards running statistics, by bounded numbers r and d
    without gradient.
    """

    is_batch_renorm = True  # rlsdk-kernels recognizes the layer by it
    mean: Tensor
    variance: Tensor
    passes: Tensor

    def __init__(self, shape: Sequence[int], networks: CrossQPolicyConfig) -> None:
        """`shape` is (F,) or (C, F)."""
        super().__init__()
        self.momentum, self.eps = networks.batch_norm_momentum, networks.batch_norm_eps
        self.warm_up = networks.renorm_warmup_steps
        self.scale, self.bias = nn.Parameter(torch.ones(*shape)), nn.Parameter(torch.zeros(*shape))
        self.register_buffer("mean", torch.zeros(*shape))
        self.register_buffer("variance", torch.ones(*shape))
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        # not `training`: a call of `train()` would make predictions depend on the other rows of the batch
        self.in_batch = False

    def forward(self, x: Tensor) -> Tensor:
        """[N, F] -> [N, F], or [C, N, F] -> [C, N, F]."""
        if not self.in_batch:
            return self._scaled(x - self.mean.unsqueeze(-2), self.variance)
        mean = x.mean(-2)
        centered = x - mean.unsqueeze(-2)
        # by hand: torch.var_mean of this axis takes eight times as long. N - 1 in the denominator, as in sb3-contrib
        variance = centered.square().sum(-2) / (x.shape[-2] - 1)
        centered, variance = _without_rounding(centered, mean, variance)
        if int(self.passes) <= self.warm_up:
            found = self._scaled(centered, variance)
        else:
            r, d = self._corrections(mean, variance)
            shift = d * variance.clamp_min(LEAST).sqrt() / r
            found = self._scaled(centered + shift.unsqueeze(-2), variance / r.square())
        with torch.no_grad():
            self.mean.lerp_(mean, self.momentum)
            self.variance.lerp_(variance, self.momentum)
            self.passes += 1
        return found

    def _scaled(self, centered: Tensor, variance: Tensor) -> Tensor:
        """Divide [.., N, F] by the root of the variance [.., F]; then apply the learned scale and bias."""
        factor = self.scale * (variance + self.eps).rsqrt()
        return torch.addcmul(self.bias.unsqueeze(-2), centered, factor.unsqueeze(-2))

    @torch.no_grad()
    def _corrections(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """The r and d, both with the shape of the parameters, that lead from the batch to the running statistics."""
        running = (self.variance + self.eps).sqrt()
        r = ((variance + self.eps).sqrt() / running).clamp(1.0 / LARGEST_SCALE, LARGEST_SCALE)
        return r, ((mean - self.mean) / running).clamp(-LARGEST_SHIFT, LARGEST_SHIFT)


def _without_rounding(centered: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return `centered` [.., N, F] and `variance` [.., F], with 0, and so without a gradient, where a feature is constant.

    What layers before such a feature change in all rows alike is subtracted with the mean, so their exact gradient is 0. The
    computed one is a sum of rounding errors. Adam divides it by its own size, and weights move at full speed without aim.
    Running means follow later, and where the variance is 0, predictions divide that difference by the root of `eps`.
    """
    # inputs have no weights before them, and may have a large mean and a small deviation
    if not centered.requires_grad:
        return centered, variance
    # a unit that is 0 in all rows is not meant: its activation passes no gradient either
    constant = variance < ROUNDING * mean.square()
    if not bool(constant.any()):
        return centered, variance
    return centered.masked_fill(constant.unsqueeze(-2), 0.0), variance.masked_fill(constant, 0.0)


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Make the `BatchRenorm` layers of a network normalize by statistics of the batch inside the `with` block."""
    layers = [layer for layer in network.modules() if isinstance(layer, BatchRenorm)]
    for layer in layers:
        layer.in_batch = True
    try:
        yield
    finally:
        for layer in layers:
            layer.in_batch = False


def normalize(actor: SquashedActor, critics: ContinuousCritics | OwnCritics, networks: CrossQPolicyConfig) -> None:
    """Put a `BatchRenorm` before every linear layer of actor and critics. Encoders and networks of users have none."""
    # an actor without hidden layers has none either, as in sb3-contrib
    if len(actor.body):
        hidden = widths(networks.net_arch, "pi", ())
        shapes = [(width,) for width in (features_dim(actor.encoder), *hidden)]
        actor.body = _normalized(actor.body, shapes, networks)
    if isinstance(critics, ContinuousCritics):
        ensemble, inputs = critics.ensemble, features_dim(critics.encoder) + actor.scale.size
        each = [(ensemble.members, width) for width in (inputs, *widths(networks.net_arch, "qf", ()))]
        ensemble.layers = _normalized(ensemble.layers, each, networks)


def _normalized(
    layers: nn.Sequential, shapes: Sequence[tuple[int, ...]], networks: CrossQPolicyConfig
) -> nn.Sequential:
    """The layers, which are pairs of a linear layer and an activation, with one layer of `shapes` before each pair."""
    found: list[nn.Module] = []
    # the last pair is a linear layer alone, or empty if the heads of the actor follow
    for number, shape in enumerate(shapes):
        found += [BatchRenorm(shape, networks), *list(layers)[2 * number : 2 * number + 2]]
    return nn.Sequential(*found)
