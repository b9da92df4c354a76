"""Members of stable-baselines3's policies that policies here do not have under those names, and classes of users.

A part that exists here under another name is given. Every other member raises an error that names the replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import NoReturn, TypeVar

import torch
from torch import nn

from rlsdk.errors import RlsdkError, SettingsError, UnknownAttributeError, UsageError, one_line

T = TypeVar("T", bound=type)


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


LONGEST = 300
"""The maximum number of characters of a user's error in an error of rlsdk."""


@dataclass(frozen=True, slots=True)
class UserClass:
    """A class, or a function that makes a module, from a user's settings."""

    algorithm: str
    """The id of the algorithm, for errors; may be empty."""
    setting: str
    """The name of the setting in `policy_kwargs`; it ends with `_class`."""
    kind: Callable[..., nn.Module]
    arguments: Mapping[str, object]

    def __str__(self) -> str:
        """The algorithm, the setting and the class, for errors."""
        where = f"{self.algorithm}: policy_kwargs.{self.setting}" if self.algorithm else f"policy_kwargs.{self.setting}"
        return f"{where} {getattr(self.kind, '__name__', repr(self.kind))}"

    def build(self, **first: object) -> nn.Module:
        """Create the module with the values of `first`, in order, and the user's arguments.

        Raises:
            SettingsError: the class takes other arguments, raises an error, or makes no module.
        """
        called = f"it is called with ({', '.join(first)}) and {self.setting.removesuffix('class')}kwargs {dict(self.arguments)}"
        with self.errors(f"{self} cannot be made", called):
            module: object = self.kind(*first.values(), **self.arguments)
        if not isinstance(module, nn.Module):
            raise SettingsError(f"{self} must give a torch.nn.Module, not {type(module).__name__}; {called}")
        return module

    @contextmanager
    def errors(self, what: str, remedy: str) -> Iterator[None]:
        """Inside the `with` block, convert every error of the user's code to SettingsError. Errors of rlsdk are not
        converted."""
        try:
            yield
        except RlsdkError:
            raise
        except Exception as error:  # code of the user
            cause = one_line(error, LONGEST) if str(error) else type(error).__name__
            raise SettingsError(f"{what}: {cause}; {remedy}") from error
