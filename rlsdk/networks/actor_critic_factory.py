"""Builds an actor-critic network from settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from torch import nn

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext
from rlsdk.networks.action_heads import (
    PLAIN,
    ActionScale,
    GaussianHead,
    SdeHead,
    StateDependentNoise,
    build_action_head,
    require_box,
)
from rlsdk.networks.actor_critic import ActorCritic, Torso
from rlsdk.networks.critics import OutputColumns, own_network
from rlsdk.networks.encoders import build_encoder, features_dim, named, uses_nature_cnn
from rlsdk.networks.layers import mlp, orthogonal
from rlsdk.networks.recurrent import LinearMemory, NoMemory, build_memory, own_memory
from rlsdk.settings.actor_critic import ActorCriticConfig, RecurrentConfig, widths
from rlsdk.spaces import Space


class NetworkSettings(Protocol):
    """The settings of an on-policy algorithm that its network depends on."""

    @property
    def policy(self) -> str: ...
    @property
    def policy_kwargs(self) -> ActorCriticConfig: ...


def build_actor_critic(
    context: BuildContext,
    config: NetworkSettings,
    *,
    memory: str | None = None,
    use_sde: bool = False,
    sde_every: int = -1,
    head: Callable[[Space, int], nn.Module] | None = None,
) -> ActorCritic:
    """Build the actor-critic network for an environment.

    Args:
        context: spaces, device and other data of the environment.
        config: the policy's name and the network settings.
        memory: `lstm`, `gru`, or None.
        use_sde: whether to explore with state-dependent noise.
        sde_every: steps between noise matrices; -1 = one per rollout.
        head: makes another action head, given the action space and the width of the latent features; None:
            `build_action_head`. The head is a module: `head(latent [N, width], mask) -> Distribution` over actions of its own
            form. Its methods `to_environment` and `from_environment` convert actions [N, ..] of this form to environment units
            and back.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    networks = config.policy_kwargs
    if not use_sde:
        _require_plain_noise(networks)
    head = _own_head(networks, head, use_sde=use_sde)
    if networks.actor_class is not None or networks.critic_class is not None:
        require_no_latent(memory=memory is not None, use_sde=use_sde, head=head is not None)
        return build_own_actor_critic(context, config.policy, networks).to(context.device)
    encoder = build_encoder(context, config.policy, networks)
    shared = networks.share_features_extractor
    # the order of construction is that of the random numbers: another one gives other weights for the same seed
    other = encoder if shared else build_encoder(context, config.policy, networks)
    # NatureCNN ends with a dense layer, so no hidden layers follow by default (Mnih et al. 2015)
    default: tuple[int, ...] = () if uses_nature_cnn(encoder) else HIDDEN
    actor_memory, critic_memory, width = _memories(context.algorithm, networks, memory, features_dim(encoder))
    shared_widths = (networks.net_arch or {}).get("shared", ())
    trunk = mlp(width, shared_widths, networks.activation_fn)
    """The first hidden layers, which actor and critic share."""
    trunk_width = shared_widths[-1] if shared_widths else width
    torsos, outputs = [], []
    for name, part, own in (("pi", encoder, actor_memory), ("vf", other, critic_memory)):
        hidden = widths(networks.net_arch, name, default, names=("shared", "pi", "vf"), absent=())
        layers = mlp(trunk_width, hidden, networks.activation_fn)
        torsos.append(Torso(part, own, nn.Sequential(*trunk, *layers)))
        outputs.append(hidden[-1] if hidden else trunk_width)
    if head is None:
        made = _head(context.action_space, outputs[0], networks, use_sde)
    else:
        made = head(context.action_space, outputs[0])
    network = ActorCritic(torsos[0], torsos[1], made, nn.Linear(outputs[1], 1), kernel=networks.kernel)
    network.resample_every = sde_every if sde_every > 0 else None
    # after the whole network exists: the order of the draws decides the weights of a seed
    if networks.ortho_init:
        _initialize(network)
    return network.to(context.device)


def _own_head(
    networks: ActorCriticConfig, head: Callable[[Space, int], nn.Module] | None, *, use_sde: bool
) -> Callable[[Space, int], nn.Module] | None:
    """The maker of the head: that of `action_distribution` if it is set, else `head`.

    Raises:
        SettingsError: the algorithm has its own head or state-dependent noise, or no package has a distribution of the name.
    """
    chosen = networks.action_distribution
    if chosen is not None and (head is not None or use_sde):
        what = "use_sde = true" if use_sde else "the algorithm"
        raise SettingsError(f"{what} has its own distribution of actions; leave action_distribution out")
    if chosen is None:
        return head
    return cast("Callable[..., nn.Module]", named("distributions", chosen, "policy_kwargs.action_distribution"))


def _memories(
    algorithm: str, networks: ActorCriticConfig, kind: str | None, inputs: int
) -> tuple[nn.Module, nn.Module | None, int]:
    """(memory of the actor, memory of the critic or None if it uses the actor's, width of their outputs)."""
    if kind is None:
        return NoMemory(inputs), NoMemory(inputs), inputs
    assert isinstance(networks, RecurrentConfig)

    def made() -> nn.Module:
        if networks.memory_class is not None:
            return own_memory(algorithm, inputs, networks)
        arguments = networks.lstm_kwargs or {}
        return build_memory(kind, inputs, networks.lstm_hidden_size, networks.n_lstm_layers, arguments)

    actor = made()
    width = features_dim(actor)
    if networks.shared_lstm:
        return actor, None, width
    # a linear layer, because the value layers need the width of the memory's output
    return actor, made() if networks.enable_critic_lstm else LinearMemory(inputs, width), width


def _require_plain_noise(networks: ActorCriticConfig) -> None:
    """Raises SettingsError if a setting of state-dependent noise is given although `use_sde` is false."""
    given = {"squash_output": networks.squash_output, "use_expln": networks.use_expln}
    for name in [name for name, value in given.items() if value] + ["full_std = false"] * (not networks.full_std):
        raise SettingsError(f"{name} needs use_sde = true")


def _head(space: Space, latent: int, networks: ActorCriticConfig, use_sde: bool) -> nn.Module:
    if not use_sde:
        return build_action_head(space, latent, networks.log_std_init)
    box = require_box(space)
    head = GaussianHead(latent, box, 0.0)
    # parameters that nothing trains would appear in optimizers and files
    del head.log_std  # the noise has its own parameter
    noise = StateDependentNoise(
        latent, head.linear.out_features, networks.log_std_init, networks.use_expln, full_std=networks.full_std
    )
    return SdeHead(head, noise, ActionScale(box) if networks.squash_output else None)


def _initialize(network: ActorCritic) -> None:
    """Set orthogonal weights and zero biases in linear layers and convolutions. Memories retain torch's initial weights."""
    for gain, part in (
        (GAINS["torso"], network.encoder),
        (GAINS["torso"], network.critic_encoder),
        (GAINS["torso"], network.body),
        (GAINS["torso"], network.critic_body),
        (GAINS["head"], network.head),
        (GAINS["value"], network.value),
    ):
        if part is not None:
            orthogonal(part, gain)


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
            f"{what} has no effect with actor_class and critic_class, which replace the whole network; leave these out,"
            f" and pass features_extractor_class{instead}"
        )


def build_own_actor_critic(context: BuildContext, policy: str, networks: ActorCriticConfig) -> ActorCritic:
    """Build an actor-critic whose actor and value function are each a user's network, or an encoder with hidden layers.

    The initial weights of users' networks are not changed.

    Raises:
        SettingsError: the user's class takes other arguments, or its output has another shape.
        UnsupportedSpaceError: the space is not supported.
    """
    head: nn.Module
    # the user's network returns the value itself
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
    # kernels know no layers of users
    return ActorCritic(actor, critic, head, value, kernel="autograd")


def _without_layers(head: nn.Module) -> int:
    """Replace the linear layers of a head by `OutputColumns`, which select their part of the network's output.

    Returns the total number of columns.
    """
    start = 0
    for part in head.modules():
        if isinstance(part, PLAIN):
            stop = start + part.linear.out_features
            cast("Any", part).linear = OutputColumns(start, stop)
            start = stop
    return start


def _own_side(context: BuildContext, networks: ActorCriticConfig, side: str, outputs: int) -> Torso:
    what = "the value of each observation" if side == "critic" else f"the {outputs} logits or means of an action"
    encoder = own_network(context, networks, side, (outputs,), what)
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
