"""Builds actor-critics in which a user's network replaces the actor, the value function or both."""

from __future__ import annotations

from typing import Any, cast

from torch import nn

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext
from rlsdk.networks.action_heads import PLAIN
from rlsdk.networks.actor_critic import ActorCritic, Torso
from rlsdk.networks.build_action_head import build_action_head
from rlsdk.networks.build_encoder import build_encoder, uses_nature_cnn
from rlsdk.networks.encoders import features_dim
from rlsdk.networks.initialisation import orthogonal
from rlsdk.networks.mlp import mlp
from rlsdk.networks.own_networks import Columns, OwnNetworkSettings, own_network
from rlsdk.networks.recurrent import NoMemory
from rlsdk.settings.actor_critic import ActorCriticConfig
from rlsdk.settings.networks import widths

HIDDEN = (64, 64)
GAINS = {"torso": 2.0**0.5, "head": 0.01, "value": 1.0}
"""Gains of orthogonal initial weights. With the small gain of the head, the first policy is nearly the same in all states."""


def require_no_latent(*, memory: bool, use_sde: bool, head: bool) -> None:
    """Raises SettingsError if a memory, state-dependent noise or the plugin's own action head is used: each needs latent
    features of a network of rlsdk."""
    if memory or use_sde or head:
        what, instead = (
            ("a memory", " or memory_class") if memory else ("use_sde" if use_sde else "the action head", "")
        )
        raise SettingsError(
            f"{what} stands between the layers of the network, which actor_class and critic_class replace as a whole; leave"
            f" these out, and give features_extractor_class{instead}"
        )


def build_own_actor_critic(context: BuildContext, policy: str, networks: ActorCriticConfig) -> ActorCritic:
    """Build an actor-critic whose actor and value function are each a user's network, or an encoder with hidden layers.

    The initial weights of users' networks are not changed.

    Raises:
        SettingsError: the user's class takes other arguments, or its output has another shape.
        UnsupportedSpaceError: the space is not supported.
    """
    head: nn.Module
    value: nn.Module = nn.Identity()
    if networks.actor_class is not None:
        head = build_action_head(context.action_space, 1, networks.log_std_init)
        actor = _own_side(context, networks, "actor", _without_layers(head))
    else:
        actor, latent = _default_side(context, policy, networks, "pi")
        head = build_action_head(context.action_space, latent, networks.log_std_init)
        if networks.ortho_init:
            orthogonal(head, GAINS["head"])
    if networks.critic_class is not None:
        critic = _own_side(context, networks, "critic", 1)
    else:
        critic, latent = _default_side(context, policy, networks, "vf")
        value = nn.Linear(latent, 1)
        if networks.ortho_init:
            orthogonal(value, GAINS["value"])
    return ActorCritic(actor, critic, head, value, kernel="autograd")


def _without_layers(head: nn.Module) -> int:
    """Replace the linear layers of a head by `Columns`, which select their part of the network's output.

    Returns the total number of columns.
    """
    start = 0
    for part in head.modules():
        if isinstance(part, PLAIN):
            stop = start + part.linear.out_features
            cast("Any", part).linear = Columns(start, stop)
            start = stop
    return start


def _own_side(context: BuildContext, networks: ActorCriticConfig, side: str, outputs: int) -> Torso:
    own = {
        "actor": (networks.actor_class, networks.actor_kwargs),
        "critic": (networks.critic_class, networks.critic_kwargs),
    }
    given = OwnNetworkSettings(f"{side}_class", *own[side], networks.normalize_images)
    what = "the value of each observation" if side == "critic" else f"the {outputs} logits or means of an action"
    encoder = own_network(context, given, (outputs,), what)
    return Torso(encoder, NoMemory(outputs), nn.Sequential())


def _default_side(context: BuildContext, policy: str, networks: ActorCriticConfig, name: str) -> tuple[Torso, int]:
    """(encoder and hidden layers, width of their output)."""
    encoder = build_encoder(context, policy, networks)
    default: tuple[int, ...] = () if uses_nature_cnn(encoder) else HIDDEN
    hidden = widths(networks.net_arch, name, default, names=("pi", "vf"), absent=())
    inputs = features_dim(encoder)
    body = mlp(inputs, hidden, networks.activation_fn)
    if networks.ortho_init:
        orthogonal(encoder, GAINS["torso"])
        orthogonal(body, GAINS["torso"])
    return Torso(encoder, NoMemory(inputs), body), hidden[-1] if hidden else inputs
