"""The networks of IQL: a policy with values of observations, and critics of recorded actions of any kind."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rlsdk.distributions import Gaussian
from rlsdk.interfaces import BuildContext
from rlsdk.kernels import KernelChoice
from rlsdk.networks import (
    ActionScale,
    ActorCritic,
    ContinuousCritics,
    EnsembleMLP,
    FlattenEncoder,
    build_actor_critic,
    build_encoder,
    features_dim,
)
from rlsdk.settings import ActorCriticConfig, widths
from rlsdk.spaces import Box, Space
from rlsdk_iql.config import IQLConfig, IQLNetworkConfig

HIDDEN = (256, 256)
NAMES = ("pi", "vf", "qf")


class TanhMeanHead(nn.Module):
    """The head of a bounded Box: a Gaussian over unit actions whose mean is squashed by tanh, with equal deviations everywhere.

    Samples outside of [-1, 1] become the nearest action inside. Unlike a squashed Gaussian, it has a finite density at the
    bounds, where many recorded actions lie.
    """

    def __init__(self, space: Box, latent: int) -> None:
        super().__init__()
        self.scale = ActionScale(space)
        self.linear = nn.Linear(latent, self.scale.size)
        self.log_std = nn.Parameter(torch.zeros(self.scale.size))

    def forward(self, latent: Tensor, mask: Tensor | None) -> Gaussian:
        """Return the distribution of actions in [-1, 1], [N, A], for latent features [N, width]."""
        mean = self.linear(latent).tanh()
        return Gaussian(mean, self.log_std.expand_as(mean))

    def to_environment(self, action: Tensor) -> Tensor:
        """Convert unit actions [N, A] to environment units [N, *shape], inside the bounds."""
        return self.scale.to_environment(action)

    def from_environment(self, action: Tensor) -> Tensor:
        """Convert environment units [N, *shape] to unit actions [N, A]."""
        return self.scale.to_unit(action)


class ActionInput(nn.Module):
    """Converts recorded actions to inputs of the critics, [N, A]: unit actions of a Box, one-hot choices, or bits."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.scale = ActionScale(space) if isinstance(space, Box) else None
        self.flat = None if isinstance(space, Box) else FlattenEncoder(space)

    @property
    def width(self) -> int:
        """The number of inputs A."""
        return self.scale.size if self.scale is not None else features_dim(self._flat)

    @property
    def _flat(self) -> FlattenEncoder:
        assert self.flat is not None
        return self.flat

    def forward(self, action: Tensor) -> Tensor:
        """Actions in environment units [N, ..] -> float [N, A]."""
        found: Tensor = self._flat(action) if self.scale is None else self.scale.to_unit(action)
        return found


def build_policy(context: BuildContext, config: IQLConfig) -> ActorCritic:
    """Build the policy and the values V, with separate encoders, on the context's device.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    networks = config.policy_kwargs
    layers = {name: _widths(networks, name) for name in ("pi", "vf")}
    settings = ActorCriticConfig(
        net_arch=layers,
        activation_fn=networks.activation_fn,
        features_extractor_class=networks.features_extractor_class,
        features_extractor_kwargs=networks.features_extractor_kwargs,
        normalize_images=networks.normalize_images,
        kernel=networks.kernel,
        ortho_init=False,
        share_features_extractor=False,
    )
    head: Callable[[Space, int], nn.Module] | None = None
    if isinstance(context.action_space, Box):
        head = _tanh_mean_head
    return build_actor_critic(context, _Settings(config.policy, settings), head=head)


def build_critics(context: BuildContext, config: IQLConfig, inputs: int) -> ContinuousCritics:
    """Build `n_critics` critics of (observation features, action inputs [N, `inputs`]) on the context's device.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    networks, hidden = config.policy_kwargs, _widths(config.policy_kwargs, "qf")
    encoder = build_encoder(context, config.policy, networks)
    width = features_dim(encoder) + inputs
    ensemble = EnsembleMLP(networks.n_critics, width, hidden, 1, networks.activation_fn)
    choice = KernelChoice(networks.kernel, max(hidden, default=1), config.batch_size, context.device)
    return ContinuousCritics(encoder, ensemble, choice).to(context.device)


class _Settings:
    """The settings that `build_actor_critic` reads."""

    def __init__(self, policy: str, policy_kwargs: ActorCriticConfig) -> None:
        self.policy, self.policy_kwargs = policy, policy_kwargs


def _widths(networks: IQLNetworkConfig, name: str) -> tuple[int, ...]:
    return widths(networks.net_arch, name, HIDDEN, names=NAMES)


def _tanh_mean_head(space: Space, latent: int) -> nn.Module:
    assert isinstance(space, Box)
    return TanhMeanHead(space, latent)
