"""Methods of stable-baselines3's policies that policies here do not have. Each raises an error that names the replacement."""

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
    "load_from_vector": "torch.nn.utils.vector_to_parameters(vector, model.policy.parameters()) does it",
    "parameters_to_vector": "torch.nn.utils.parameters_to_vector(model.policy.parameters()) gives them",
    "scale_action": "model.predict gives actions in the units of the environment",
    "unscale_action": "model.predict gives actions in the units of the environment",
    "save": "model.save(path) writes the agent, torch.save(model.policy.state_dict(), path) the weights alone",
}
OF_VALUES = ("get_distribution", "predict_values", "evaluate_actions")
"""Methods that exist only in policies with a value function."""
T = TypeVar("T", bound=type)


def explains_documented_methods(policy: T) -> T:
    """Class decorator that adds the methods of `INSTEAD` and `OF_VALUES` that the class lacks.

    When they are called, those of `INSTEAD` raise UsageError and those of `OF_VALUES` UnknownAttributeError.
    """
    for name in (*INSTEAD, *OF_VALUES):
        if getattr(policy, name, nn.Module.forward) is nn.Module.forward:
            setattr(policy, name, _explaining(policy.__name__, name))
    return policy


def _explaining(kind: str, name: str) -> Callable[..., NoReturn]:
    def method(self: object, *_: object, **__: object) -> NoReturn:
        if name in OF_VALUES:
            raise UnknownAttributeError(f"{kind} has no method {name!r}: it has no value function")
        raise UsageError(f"{kind} has no method {name!r}; {INSTEAD[name]}")

    method.__name__ = name
    return method
