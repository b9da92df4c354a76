"""Members of documented policies that policies here do not have: each raises an error that names the replacement."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

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
    "save": "model.save(path) writes the agent, torch.save(model.policy.state_dict(), path) the weights alone",
}
OF_VALUES = ("get_distribution", "predict_values", "evaluate_actions")
"""Methods of policies that come with a value function."""
COUNTERPARTS = {
    "action_net": ("head", "layers"),
    "features_extractor": ("encoder",),
    "latent_pi": ("body",),
    "lstm_actor": ("memory",),
    "lstm_critic": ("critic_memory",),
    "mlp_extractor": ("body", "critic_body"),
    "mu": ("mean", "layers"),
    "pi_features_extractor": ("encoder",),
    "q_net": ("body", "head"),
    "q_networks": ("ensemble",),
    "quantile_net": ("body", "head"),
    "value_net": ("value",),
    "vf_features_extractor": ("critic_encoder", "encoder"),
}
"""Documented layers -> what they may be called here."""
SETTINGS = (
    *("activation_fn", "features_extractor_class", "features_extractor_kwargs", "lstm_hidden_size", "n_critics"),
    *("n_quantiles", "net_arch", "normalize_images", "optimizer_class", "optimizer_kwargs", "ortho_init"),
    *("share_features_extractor", "squash_output"),
)
"""Settings that documented policies keep as attributes."""
ATTRIBUTES = {
    "action_dist": "get_distribution(observation) gives the distribution where there is a value function",
    "action_space": "it is model.action_space",
    "actor": "the policy itself is model.actor",
    "critic": "it is model.critic",
    "critic_target": "it is model.critic_target",
    "device": "it is model.device",
    "load_from_vector": "torch.nn.utils.vector_to_parameters(vector, model.policy.parameters()) does it",
    "log_std": "get_distribution(observation).log_std where the distribution is a Gaussian",
    "lr_schedule": "it is model.lr_schedule",
    "observation_space": "it is model.observation_space",
    "optimizer": "model.get_parameters() has the state of the optimisers, model.learning_rate the rate",
    "parameters_to_vector": "torch.nn.utils.parameters_to_vector(model.policy.parameters()) gives them",
    "q_net_target": "it is model.q_net_target",
    "quantile_net_target": "it is model.quantile_net_target",
    "quantiles_total": "n_critics * n_quantiles of model.config.policy_kwargs",
    "scale_action": "model.predict gives actions in the units of the environment",
    "unscale_action": "model.predict gives actions in the units of the environment",
    "use_sde": "it is model.use_sde",
    **dict.fromkeys(SETTINGS, "the settings of networks are in model.config.policy_kwargs"),
}
"""Further documented attributes, and what to use."""
T = TypeVar("T", bound=type)


def explains_documented_methods(policy: T) -> T:
    """The methods of `INSTEAD` and `OF_VALUES` that the class lacks raise UsageError and UnknownAttributeError when they are
    called, documented attributes when they are read; a class decorator too."""
    for name in (*INSTEAD, *OF_VALUES):
        if getattr(policy, name, nn.Module.forward) is nn.Module.forward:
            setattr(policy, name, _explaining(policy.__name__, name))
    return explains_documented_attributes(policy)


def explains_documented_attributes(network: T) -> T:
    """Attributes of `COUNTERPARTS` and `ATTRIBUTES` that a network lacks raise UnknownAttributeError; a class decorator too."""
    network.__getattr__ = _absent  # type: ignore[attr-defined]  # of modules, which look their parts up with it
    return network


def _absent(self: nn.Module, name: str) -> object:
    try:
        return nn.Module.__getattr__(self, name)
    except AttributeError:
        if name not in COUNTERPARTS and name not in ATTRIBUTES:
            raise
    parts = [part for part in COUNTERPARTS.get(name, ()) if part in self._modules]
    hint = f"here it is {' and '.join(parts)}" if parts else "print(model.policy) lists the layers"
    raise UnknownAttributeError(f"{type(self).__name__} has no attribute {name!r}; {ATTRIBUTES.get(name, hint)}")


def _explaining(kind: str, name: str) -> Callable[..., NoReturn]:
    def method(self: object, *_: object, **__: object) -> NoReturn:
        if name in OF_VALUES:
            raise UnknownAttributeError(f"{kind} has no method {name!r}: it has no value function")
        raise UsageError(f"{kind} has no method {name!r}; {INSTEAD[name]}")

    method.__name__ = name
    return method
