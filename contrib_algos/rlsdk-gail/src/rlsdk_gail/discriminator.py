"""The network that distinguishes the expert's steps from the policy's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlsdk.interfaces import BuildContext
from rlsdk.networks import CombinedEncoder, FlattenEncoder, build_encoder, features_dim, mlp
from rlsdk.records import Features
from rlsdk.settings import NetworkConfig
from rlsdk.spaces import Box, Dict, Space, Tuple, map_leaves

BOUND, LEAST_VARIANCE = 10.0, 1e-4


class RunningScale(nn.Module):
    """Normalizes rows by the mean and the standard deviation of all rows given to `update`, and clips them to +-`BOUND`."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(width, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def update(self, rows: Tensor) -> None:
        """Update the mean and the variance with rows [N, F] (Chan et al. 1979)."""
        if not len(rows):
            return
        rows, total = rows.double(), self.count + len(rows)
        variance, mean = torch.var_mean(rows, dim=0, correction=0)
        away = mean - self.mean
        within = (self.count * self.variance + len(rows) * variance) / total
        self.variance.copy_(within + away.square() * self.count * len(rows) / total.square())
        self.mean.add_(away * len(rows) / total)
        self.count.copy_(total)

    def forward(self, rows: Tensor) -> Tensor:
        """Return normalized rows, float32 [N, F]. The statistics do not change."""
        deviation = self.variance.clamp_min(LEAST_VARIANCE).sqrt()
        return ((rows - self.mean) / deviation).float().clamp(-BOUND, BOUND)


class Discriminator(nn.Module):
    """A network from observations and actions to logits, with two hidden tanh layers.

    Observations pass through an encoder of the policy's kind. If that encoder has no weights, `RunningScale` normalizes them.
    """

    def __init__(self, context: BuildContext, policy: str, networks: NetworkConfig, hidden: int) -> None:
        """`hidden`: units of each hidden layer. Raises UnsupportedSpaceError: the policy does not fit the observations."""
        super().__init__()
        self.encoder = build_encoder(context, policy, networks)
        width = features_dim(self.encoder)
        self.scale = None if any(True for _ in self.encoder.parameters()) else RunningScale(width)
        self.action_space = context.action_space
        self.action_encoder = _flat(context.action_space)
        inputs = width + features_dim(self.action_encoder)
        self.layers = nn.Sequential(*mlp(inputs, (hidden, hidden), "tanh"), nn.Linear(hidden, 1))

    def inputs(self, observation: Features, action: Features) -> Tensor:
        """The input of the layers, float [N, F], for N observations as the policy gets them and actions in environment units.

        Box actions are clipped to their bounds, as for the environment. Otherwise the discriminator could recognize the policy
        by actions outside the bounds.
        """
        seen, done = self.encoder(observation), self.action_encoder(executed(self.action_space, action))
        return torch.cat([seen if self.scale is None else self.scale(seen), done], dim=1)

    @torch.no_grad()
    def update_scale(self, *observations: Features) -> None:
        """Update the statistics with observations [N, ..] of the expert and of the policy."""
        if self.scale is not None:
            self.scale.update(torch.cat([self.encoder(each) for each in observations]))

    def logits(self, inputs: Tensor) -> Tensor:
        """The logits [N] of `inputs` [N, F]. A logit above 0 means that the step is more probably the expert's."""
        found: Tensor = self.layers(inputs)
        return found.squeeze(-1)

    def forward(self, observation: Features, action: Features) -> Tensor:
        """The logits [N] of N steps; see `inputs`."""
        return self.logits(self.inputs(observation, action))


def _flat(space: Space) -> nn.Module:
    """Build the encoder of actions, nested or not."""
    return CombinedEncoder(space) if isinstance(space, Dict | Tuple) else FlattenEncoder(space)


def executed(space: Space, action: Features) -> Features:
    """Clip the Box parts of actions [N, ..] in environment units to their bounds, as is done for the environment."""

    def within(_: str, leaf: Space, values: Tensor) -> Tensor:
        if not isinstance(leaf, Box):
            return values
        low, high = (torch.tensor(bound).to(values) for bound in (leaf.low, leaf.high))
        return values.reshape(-1, *leaf.shape).clamp(low, high)

    found: Features = map_leaves(space, within, action, path="action")
    return found
