"""Members of stable-baselines3's policies that policies here do not have under those names.

A part that exists here under another name is given. Every other member raises an error that names the replacement.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import NoReturn, TypeVar

import torch
from torch import nn

from rlsdk.errors import UnknownAttributeError, UsageError

INSTEAD = {
    "forward": "model.predict(observation) acts",
    "predict": "model.predict(observation) acts",
    "extract_features": "networks are the parts of the policy: print(model.policy) lists them",
    "obs_to_tensor": "get_distribution, predict_values and evaluate_actions take observations in numpy as they are; networks,"
    " such as model.q_net, take batches of tensors",
    "reset_noise": "policies draw their noise themselves, see sde_sample_freq",
    "set_training_mode": "parts switch their modes themselves",
    "load_from_vector": "torch.nn.utils.vector_to_parameters(vector, model.policy.parameters()) does it",
    "parameters_to_vector": "torch.nn.utils.parameters_to_vector(model.policy.parameters()) gives them",
    "scale_action": "model.predict gives actions in the units of the environment",
    "unscale_action": "model.predict gives actions in the units of the environment",
    "save": "model.save(path) writes the agent, torch.save(model.policy.state_dict(), path) the weights alone",
}
OF_VALUES = ("get_distribution", "predict_values", "evaluate_actions")
"""Methods that exist only in policies with a value function."""
PARTS = {
    "action_net": ("head",),
    "features_extractor": ("encoder",),
    "latent_pi": ("body",),
    "log_std": ("head.log_std",),
    "lstm_actor": ("memory.cells",),
    "lstm_critic": ("critic_memory.cells",),
    "mu": ("mean",),
    "pi_features_extractor": ("encoder",),
    "value_net": ("value",),
    "vf_features_extractor": ("critic_encoder", "encoder"),
}
"""Documented name of a part -> its paths here; the first that exists is given."""
_MADE = "networks are made from policy_kwargs"
_SETTING = "a setting of the networks: model.config.policy_kwargs.{name}"
_SPACE = "it is the model's: model.{name}"
_OTHERS = "model.{name} is it, where the algorithm has one"
ELSEWHERE = {
    **dict.fromkeys(("actor_target", "critic", "critic_target", "q_net_target", "quantile_net_target"), _OTHERS),
    **dict.fromkeys(("action_space", "observation_space", "lr_schedule", "use_sde"), _SPACE),
    **dict.fromkeys(("init_weights", "make_actor", "make_critic", "make_features_extractor", "make_q_net"), _MADE),
    **dict.fromkeys(
        (
            "activation_fn",
            "enable_critic_lstm",
            "features_extractor_class",
            "features_extractor_kwargs",
            "log_std_init",
            "lstm_hidden_size",
            "n_critics",
            "n_lstm_layers",
            "n_quantiles",
            "net_arch",
            "normalize_images",
            "optimizer_class",
            "optimizer_kwargs",
            "ortho_init",
            "share_features_extractor",
            "use_expln",
        ),
        _SETTING,
    ),
    "action_dist": "get_distribution(observation) gives it",
    "actor": "the policy is the actor: its body and head act",
    "critic_features_extractor": "encoder is shared unless share_features_extractor=False gives a critic_encoder",
    "features_dim": "rlsdk.networks.features_dim(model.policy.encoder) is it",
    "mlp_extractor": "body has the hidden layers of the policy, critic_body those of the values",
    "optimizer": "model.get_parameters() has the states of optimisers, optimizer_class chooses them",
    "q_net": "only policies of values, such as DQN's, have one",
    "q_networks": "each layer of the critics holds all networks: outputs are [critics, N, 1]",
    "quantile_net": "only QR-DQN's policy has one",
    "squash_output": "model.predict gives actions within their bounds",
}
"""Documented attribute without a counterpart -> what to use instead; `{name}` is its name."""
T = TypeVar("T", bound=type)


def explains_documented_methods(policy: T) -> T:
    """Class decorator that adds the methods of `INSTEAD` and `OF_VALUES` that the class lacks, and `explains_attributes`.

    When they are called, those of `INSTEAD` raise UsageError and those of `OF_VALUES` UnknownAttributeError.
    """
    explains_attributes(policy)
    for name in (*INSTEAD, *OF_VALUES):
        if getattr(policy, name, nn.Module.forward) is nn.Module.forward:
            setattr(policy, name, _explaining(policy.__name__, name))
    return policy


def explains_attributes(network: T) -> T:
    """Class decorator for torch modules: documented names lead to the parts of `PARTS`, or to an error with a replacement.

    Its `__getattr__` replaces torch's, which is called for every layer: it looks among the layers first and costs no more.
    """
    if getattr(network, "__getattr__", None) is nn.Module.__getattr__:
        setattr(network, "__getattr__", _attribute)  # noqa: B010  # type checkers still report unknown names
    return network


def _attribute(self: nn.Module, name: str) -> object:
    here = self.__dict__
    layers = here.get("_modules")
    if layers and name in layers:
        return layers[name]
    if layers and name in here["_buffers"]:  # such as the epsilon of DQN, which is read at every step
        return here["_buffers"][name]
    try:
        return nn.Module.__getattr__(self, name)
    except AttributeError:
        if name.startswith("_") or not layers:
            raise
    return _documented(self, name)


def _documented(network: nn.Module, name: str) -> object:
    """Return what stable-baselines3 calls `name`, or raise UnknownAttributeError with what to use instead."""
    if name == "device":
        return next((tensor.device for tensor in network.parameters()), torch.device("cpu"))
    if name in getattr(network, "_also_called", ()):
        return network
    for path in PARTS.get(name, ()):
        with suppress(AttributeError):
            if (part := attrgetter(path)(network)) is not None:
                return part
    parts = ", ".join(layer for layer, _ in network.named_children())
    instead = ELSEWHERE.get(name, f"its parts are {parts}").format(name=name)
    raise UnknownAttributeError(f"{type(network).__name__} has no attribute {name!r}; {instead}")


def _explaining(kind: str, name: str) -> Callable[..., NoReturn]:
    def method(self: object, *_: object, **__: object) -> NoReturn:
        if name in OF_VALUES:
            raise UnknownAttributeError(f"{kind} has no method {name!r}: it has no value function")
        raise UsageError(f"{kind} has no method {name!r}; {INSTEAD[name]}")

    method.__name__ = name
    return method
