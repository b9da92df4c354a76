"""Builds the policy of value methods for discrete actions from settings."""

from __future__ import annotations

from torch import nn

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext
from rlsdk.kernels import KernelChoice
from rlsdk.networks.build_encoder import build_encoder, uses_nature_cnn
from rlsdk.networks.discrete_value_policy import DiscreteValuePolicy
from rlsdk.networks.dueling_head import DuelingHead
from rlsdk.networks.encoders import features_dim
from rlsdk.networks.own_networks import OwnNetworkSettings, own_network
from rlsdk.settings.networks import widths
from rlsdk.settings.q_learning import DiscreteValueConfig, QLearningConfig
from rlsdk.spaces import Discrete, MultiDiscrete, choices_of

HIDDEN = (64, 64)


def build_discrete_value_policy(
    context: BuildContext, config: QLearningConfig, values_per_action: int = 1
) -> DiscreteValuePolicy:
    """Build the policy on the context's device: an encoder, the hidden layers `net_arch` and a linear layer.

    By default `net_arch` is `[64, 64]`, and empty after NatureCNN.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    space, networks = context.action_space, config.policy_kwargs
    assert isinstance(space, Discrete | MultiDiscrete)
    if networks.network_class is not None:
        return _own(context, networks, values_per_action).to(context.device)
    encoder = build_encoder(context, config.policy, networks)
    hidden = widths(networks.net_arch, "qf", () if uses_nature_cnn(encoder) else HIDDEN, names=("qf",))
    choice = KernelChoice(networks.kernel, max(hidden, default=1), config.batch_size, context.device)
    policy = DiscreteValuePolicy(encoder, hidden, networks.activation_fn, space, values_per_action, choice=choice)
    if networks.dueling:
        policy.head = DuelingHead((hidden or (features_dim(encoder),))[-1], policy.sizes, values_per_action)
    return policy.to(context.device)


def _own(context: BuildContext, networks: DiscreteValueConfig, values_per_action: int) -> DiscreteValuePolicy:
    """Build the policy around a user's network, which returns [N, A, K] or [N, A * K].

    Raises:
        SettingsError: `dueling` is true, which needs a head that the user's network replaces.
    """
    if networks.dueling:
        raise SettingsError(
            "dueling = true needs a network made by rlsdk; leave network_class out, or set dueling = false"
        )
    space = context.action_space
    assert isinstance(space, Discrete | MultiDiscrete)
    given = OwnNetworkSettings(
        "network_class", networks.network_class, networks.network_kwargs, networks.normalize_images
    )
    outputs = (sum(choices_of(space)), values_per_action)
    encoder = own_network(context, given, outputs, f"{values_per_action} values for each of {outputs[0]} actions")
    policy = DiscreteValuePolicy(encoder, (), nn.Identity, space, values_per_action)
    policy.head = nn.Identity()
    return policy
