"""Assembles the parts of ACER. No other module chooses them."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from rlsdk.buffers import ReplayBuffer, SequenceReplay
from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import (
    Memory,
    build_encoder,
    build_memory,
    features_dim,
    memory_of,
    mlp,
    orthogonal,
    uses_nature_cnn,
)
from rlsdk.settings import widths
from rlsdk.spaces import Discrete
from rlsdk_acer.algorithm import ActorCriticWithReplay
from rlsdk_acer.config import ACERConfig
from rlsdk_acer.network import ACERNetwork, Carry
from rlsdk_acer.plan import ReplayedRollouts

HIDDEN = (64, 64)
GAIN, POLICY_GAIN, VALUE_GAIN = 2.0**0.5, 0.01, 1.0
"""The gains of orthogonal weights: of hidden layers, and of the last layers of the policy and of the action values."""


def build(context: BuildContext, config: ACERConfig) -> Parts:
    """Build the parts of one ACER agent. The name of the policy selects LSTM, GRU or none.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete, or the policy does not fit the observations.
        SettingsError: the replay buffer is too small for a rollout, or for `replay_start`.
    """
    require_spaces(context, "ACER", actions=("Discrete",))
    network = build_network(context, config)
    update, buffer = ActorCriticWithReplay(network, config), build_buffer_of_rollouts(context, config, network)
    return Parts(policy=network, algorithm=update, plan=ReplayedRollouts.of(config), buffer=buffer)


def build_buffer_of_rollouts(context: BuildContext, config: ACERConfig, network: ACERNetwork) -> SequenceReplay[Carry]:
    """Build the replay buffer, from which whole rollouts are sampled.

    Raises:
        SettingsError: the buffer has no room for a rollout, or never holds `replay_start` transitions.
    """
    length, envs = config.n_steps, context.num_envs
    rollouts = config.buffer_size // (length * envs)  # whole rollouts, so that each is overwritten as a whole
    if not rollouts:
        raise SettingsError(
            f"buffer_size = {config.buffer_size} has no room for a rollout of n_steps = {length} with {envs} environments;"
            f" give at least {length * envs}"
        )
    size = rollouts * length * envs
    if config.replay_start > size and config.replay_ratio:
        raise SettingsError(
            f"replay_start = {config.replay_start} is never reached: whole rollouts within buffer_size = {config.buffer_size}"
            f" have {size} transitions; lower replay_start, enlarge buffer_size, or set replay_ratio = 0"
        )
    probs, steps = torch.zeros(network.actions), ReplayBuffer(context, size, config.gamma)
    return SequenceReplay[Carry](steps, length=length, extras={"probs": probs}, carry=network.initial_carry(envs))


def build_network(context: BuildContext, config: ACERConfig) -> ACERNetwork:
    """Build the network for an environment, on the context's device. Raises the same errors as `build`."""
    space, networks = context.action_space, config.policy_kwargs
    assert isinstance(space, Discrete)
    encoder = build_encoder(context, config.policy, networks)
    size = networks.lstm_hidden_size, networks.n_lstm_layers, networks.lstm_kwargs or {}
    memory = cast("Memory", build_memory(memory_of(config.policy), features_dim(encoder), *size))
    shared, inputs = (networks.net_arch or {}).get("shared", ()), memory.features_dim
    trunk, width = mlp(inputs, shared, networks.activation_fn), (inputs, *shared)[-1]
    default, sides = () if uses_nature_cnn(encoder) else HIDDEN, []
    for name, gain in (("pi", POLICY_GAIN), ("qf", VALUE_GAIN)):
        hidden = widths(networks.net_arch, name, default, names=("shared", "pi", "qf"), absent=())
        layers = mlp(width, hidden, networks.activation_fn)
        side = nn.Sequential(*trunk, *layers, nn.Linear(hidden[-1] if hidden else width, space.n))
        if networks.ortho_init:
            orthogonal(side, GAIN)
            orthogonal(side[-1], gain)
        sides.append(side)
    if networks.ortho_init:
        orthogonal(encoder, GAIN)
    return ACERNetwork(encoder, memory, sides[0], sides[1], space).to(context.device)
