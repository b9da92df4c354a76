"""Networks with layer norm, dropout or residual blocks, for whole actors, critics and Q networks.

Sources: Ba et al. 2016, arXiv:1607.06450 (layer norm); Hiraoka et al. 2022, arXiv:2110.02034 (DroQ);
Lee et al. 2024, arXiv:2410.09754 (SimBa).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim
from torch import Generator, Tensor, nn
from torch.nn.functional import relu

from rlsdk.errors import SettingsError, shown
from rlsdk.networks import Layers
from rlsdk.records import Features
from rlsdk.settings import as_net_arch

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}
WIDEST, DEEPEST = 16_384, 64
"""Bounds of `width` and `expansion`, and of `blocks`."""


SPARSE = 0.1
"""The rate up to which a CPU draws distances between zeros, which is faster than a number for each entry."""


class SeededDropout(nn.Module):
    """Sets random entries [N, F] to 0 in training mode, and divides the others by the probability that they stay.

    The random numbers follow from the initial weights' seed and a counter, and both are part of the state. So a training
    that is resumed draws the same numbers as one that was not interrupted.
    """

    seed: Tensor
    draws: Tensor

    def __init__(self, rate: float) -> None:
        """`rate` is the probability of a 0."""
        super().__init__()
        self.rate = rate
        # drawn like initial weights, so that it follows from the agent's seed; members of an ensemble have different ones
        self.register_buffer("seed", torch.randint(2**62, ()))
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, active: bool) -> Tensor:
        """float [N, F] -> [N, F]; unchanged if not `active`."""
        if not active:
            return x
        generator = Generator(device=x.device).manual_seed((int(self.seed) + int(self.draws)) % 2**63)
        self.draws += 1
        if not x.is_cpu or self.rate > SPARSE:
            stays = torch.rand(x.shape, generator=generator, device=x.device) >= self.rate
            return x * (stays.to(x.dtype) / (1.0 - self.rate))
        factor = torch.full((x.numel(),), 1.0 / (1.0 - self.rate), dtype=x.dtype)
        factor[self._zeros(x.numel(), generator)] = 0.0
        return x * factor.view(x.shape)

    def _zeros(self, entries: int, generator: Generator) -> Tensor:
        """The places of zeros among `entries` places, int64 [Z]: independent, each with the probability `rate`."""
        # distances between such places have a geometric distribution: few numbers are drawn instead of one per entry
        places = torch.zeros(1, dtype=torch.float64)
        while places[-1] <= entries:
            more = int(entries * self.rate * 1.2) + 16
            gaps = torch.empty(more, dtype=torch.float64).geometric_(self.rate, generator=generator)
            places = torch.cat([places, places[-1] + gaps.cumsum(0)])
        return places[(places > 0) & (places <= entries)].long() - 1

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


def inputs_of(space: spaces.Space[object], sizes: Sequence[int], keys: Sequence[str] | None = None) -> tuple[int, int]:
    """Return (number of inputs, number of outputs) for a space, and for actions if there are two `sizes`.

    `keys`: the entries of a Dict space that count; None: all.

    Raises:
        SettingsError: there are more sizes, or an entry does not exist.
    """
    if len(sizes) not in (1, 2):
        raise SettingsError(f"a network is made with (space, [actions,] outputs), not with {len(sizes)} sizes")
    if keys is not None:
        known = dict(space.spaces) if isinstance(space, spaces.Dict) else {}
        if isinstance(keys, str) or not keys or not all(key in known for key in keys):
            has = f"it has {', '.join(map(repr, known))}" if known else "the space has no entries, so leave keys out"
            raise SettingsError(f"keys = {shown(keys, 60)} must be a list of entries of the observation; {has}")
        space = spaces.Dict({key: known[key] for key in keys})
    return flatdim(space) + sum(sizes[:-1]), sizes[-1]


def flattened(features: Features, actions: Tensor | None, keys: Sequence[str] | None = None) -> Tensor:
    """Join preprocessed observations [N, ..], and actions [N, A] if given, to vectors float [N, inputs].

    `keys`: the entries of a table of observations that are joined; None: all.
    """
    read = features if keys is None else [features[key] for key in keys]
    parts = _tensors(read) + ([] if actions is None else [actions])
    return parts[0].flatten(1) if len(parts) == 1 else torch.cat([part.flatten(1) for part in parts], 1)


def _tensors(features: Features) -> list[Tensor]:
    if isinstance(features, Tensor):
        return [features]
    inner = features.values() if isinstance(features, Mapping) else features
    return [tensor for each in inner for tensor in _tensors(each)]


def fraction(name: str, value: float) -> float:
    """Return a number in [0, 1). Raises SettingsError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        raise SettingsError(f"{name} = {shown(value, 60)} must be a number from 0 to below 1, such as 0.01")
    return float(value)


def whole(name: str, value: object, highest: int) -> int:
    """Return a whole number from 1 to `highest`. Raises SettingsError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= highest:
        raise SettingsError(f"{name} = {shown(value, 60)} must be a whole number from 1 to {highest}")
    return value


class MlpNetwork(nn.Module):
    """Hidden layers of the form: linear, dropout, layer norm, activation; then a linear output layer.

    The order is that of the DroQ paper, figure 1. Without layer norm and dropout it is a plain perceptron.
    """

    def __init__(
        self,
        observation_space: spaces.Space[object],
        *sizes: int,
        net_arch: Sequence[int] = (256, 256),
        activation_fn: str = "relu",
        layer_norm: bool = False,
        dropout: float = 0.0,
        keys: Sequence[str] | None = None,
    ) -> None:
        """Build the layers.

        Args:
            observation_space: the space of preprocessed observations, which are flattened and joined.
            sizes: the number of outputs; for a critic of actions, the number of action dimensions before it.
            net_arch: the widths of the hidden layers.
            activation_fn: a key of `ACTIVATIONS`.
            layer_norm: normalize the inputs of each activation over the units of a row.
            dropout: the probability that a unit is 0 in a training pass, for critics. Target critics have it too.
            keys: the entries of a Dict observation that the network reads; None: all.

        Raises:
            SettingsError: a setting is outside its range.
        """
        super().__init__()
        (inputs, outputs), self.keys = inputs_of(observation_space, sizes, keys), keys
        if activation_fn not in ACTIVATIONS:
            raise SettingsError(f"activation_fn = {shown(activation_fn, 60)}; accepted: {', '.join(ACTIVATIONS)}")
        rate, table = fraction("dropout", dropout), as_net_arch(net_arch)
        if table is None or set(table) != {""}:
            raise SettingsError(f"net_arch = {shown(net_arch, 60)} must be a list of layer widths, such as [256, 256]")
        if not isinstance(layer_norm, bool):
            raise SettingsError(f"layer_norm = {shown(layer_norm, 60)} must be true or false")
        layers = list[nn.Module]()
        for width in table[""]:
            layers += [nn.Linear(inputs, width), *([SeededDropout(rate)] if rate else [])]
            layers += [*([nn.LayerNorm(width)] if layer_norm else []), ACTIVATIONS[activation_fn]()]
            inputs = width
        self.layers, self.output = nn.Sequential(*layers), nn.Linear(inputs, outputs)
        # compiled code draws no random zeros
        self._evaluate = None if rate else Layers(self, "layers", "output")

    def forward(self, observations: Features, actions: Tensor | None = None) -> Tensor:
        """Preprocessed observations [N, ..] and, for a critic, actions [N, A] -> float [N, outputs]."""
        x = flattened(observations, actions, self.keys)
        # targets of DroQ have dropout too (algorithm 2); a target network is in evaluation mode, and its weights are frozen
        active = self.training or (actions is not None and not self.output.weight.requires_grad)
        if self._evaluate is not None:
            return self._evaluate(x)
        for layer in self.layers:
            x = layer(x, active) if isinstance(layer, SeededDropout) else layer(x)
        found: Tensor = self.output(x)
        return found


class SimbaNetwork(nn.Module):
    """SimBa: a linear embedding, residual blocks with layer norm before their layers, a final layer norm, a linear output.

    Each block adds W2 relu(W1 layer_norm(x)) to its input. Observations should be normalized by running statistics, which is
    the setting `normalize`. Source: arXiv:2410.09754, section 4.
    """

    def __init__(
        self,
        observation_space: spaces.Space[object],
        *sizes: int,
        width: int | None = None,
        blocks: int | None = None,
        expansion: int = 4,
        keys: Sequence[str] | None = None,
    ) -> None:
        """Build the layers, with orthogonal and, in the blocks, He initial weights.

        Args:
            observation_space: the space of preprocessed observations, which are flattened and joined.
            sizes: the number of outputs; for a critic of actions, the number of action dimensions before it.
            width: the number of features; None: 512 for a critic of actions, else 128.
            blocks: the number of blocks; None: 2 for a critic of actions, else 1.
            expansion: the hidden layer of a block has `expansion * width` units.
            keys: the entries of a Dict observation that the network reads; None: all.

        Raises:
            SettingsError: a setting is outside its range.
        """
        super().__init__()
        (inputs, outputs), self.keys = inputs_of(observation_space, sizes, keys), keys
        large = len(sizes) == 2
        features = whole("width", (512 if large else 128) if width is None else width, WIDEST)
        depth = whole("blocks", (2 if large else 1) if blocks is None else blocks, DEEPEST)
        self.embedding = nn.Linear(inputs, features)
        hidden = features * whole("expansion", expansion, DEEPEST)
        self.blocks = nn.ModuleList(ResidualBlock(features, hidden) for _ in range(depth))
        self.norm, self.output = nn.LayerNorm(features), nn.Linear(features, outputs)
        for layer in (self.embedding, self.output):
            nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, observations: Features, actions: Tensor | None = None) -> Tensor:
        """Preprocessed observations [N, ..] and, for a critic, actions [N, A] -> float [N, outputs]."""
        x: Tensor = self.embedding(flattened(observations, actions, self.keys))
        for block in self.blocks:
            x = block(x)
        found: Tensor = self.output(self.norm(x))
        return found


class ResidualBlock(nn.Module):
    """x + W2 relu(W1 layer_norm(x)) for features [N, F]."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.first, self.second = nn.Linear(features, hidden), nn.Linear(hidden, features)
        for layer in (self.first, self.second):
            # a truncated normal distribution with the variance 2 / inputs
            deviation = math.sqrt(2.0 / layer.in_features) / TRUNCATED_STD
            nn.init.trunc_normal_(layer.weight, std=deviation, a=-2.0 * deviation, b=2.0 * deviation)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """float [N, F] -> [N, F]."""
        added: Tensor = self.second(relu(self.first(self.norm(x))))
        return x + added


TRUNCATED_STD = 0.87962566103423978
"""The standard deviation of the standard normal distribution truncated to [-2, 2]."""
