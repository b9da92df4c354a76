"""The network of PQN: values of actions, with layer normalization."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from rlsdk.interfaces import BuildContext
from rlsdk.kernels import KernelChoice
from rlsdk.networks import DiscreteValuePolicy, build_encoder, uses_nature_cnn
from rlsdk.settings import widths
from rlsdk.spaces import Discrete, MultiDiscrete
from rlsdk_pqn.config import PQNConfig

HIDDEN = (128, 128)


def build_policy(context: BuildContext, config: PQNConfig) -> DiscreteValuePolicy:
    """Build the policy on the context's device: an encoder, the hidden layers `net_arch` and a linear layer.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    space, networks = context.action_space, config.policy_kwargs
    assert isinstance(space, Discrete | MultiDiscrete)
    encoder = build_encoder(context, config.policy, networks)
    default: tuple[int, ...] = () if uses_nature_cnn(encoder) else HIDDEN
    hidden = widths(networks.net_arch, "qf", default, names=("qf",))
    rows = config.batch_size or config.n_steps * context.num_envs
    choice = KernelChoice(networks.kernel, max(hidden, default=1), rows, context.device)
    policy = DiscreteValuePolicy(encoder, hidden, networks.activation_fn, space, choice=choice)
    if networks.layer_norm:
        policy.body = normalized(policy.body)
        for part in encoder.modules():
            if uses_nature_cnn(part):
                for name in ("convolutions", "linear"):
                    setattr(part, name, normalized(part.get_submodule(name).children()))
    return policy.to(context.device)


def normalized(layers: Iterable[nn.Module]) -> nn.Sequential:
    """The layers, with a normalization of all outputs of a row after every linear layer and convolution."""
    found: list[nn.Module] = []
    for layer in layers:
        found.append(layer)
        if isinstance(layer, nn.Linear):
            found.append(nn.LayerNorm(layer.out_features))
        if isinstance(layer, nn.Conv2d):
            # one group: over channels and pixels, for images of every size
            found.append(nn.GroupNorm(1, layer.out_channels))
    return nn.Sequential(*found)
