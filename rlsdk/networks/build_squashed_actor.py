"""Builds the actor of the soft actor-critic family from an encoder and settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.encoders import features_dim
from rlsdk.networks.mlp import mlp
from rlsdk.networks.squashed_actor import SquashedActor
from rlsdk.networks.state_dependent_noise import StateDependentNoise
from rlsdk.settings.soft_actor_critic import SoftActorCriticNetworkConfig


def build_squashed_actor(
    encoder: nn.Module,
    hidden: Sequence[int],
    activation_fn: str | Callable[[], nn.Module],
    scale: ActionScale,
    *,
    sde: SoftActorCriticNetworkConfig | None = None,
    resample_every: int | None = None,
) -> SquashedActor:
    """Build an actor on top of `encoder`. With `sde` it explores with state-dependent noise."""
    inputs = features_dim(encoder)
    body = mlp(inputs, hidden, activation_fn)
    latent = hidden[-1] if hidden else inputs
    if sde is None:
        return SquashedActor(encoder, body, latent, scale)
    own = sde.sde_net_arch
    sde_latent = latent if own is None else own[-1] if own else inputs
    noise = StateDependentNoise(sde_latent, scale.size, sde.log_std_init, sde.use_expln, learn_features=True)
    actor = SquashedActor(encoder, body, latent, scale, noise)
    actor.sde_body = None if own is None else mlp(inputs, own, activation_fn)
    actor.clip_mean, actor.resample_every = sde.clip_mean, resample_every
    return actor
