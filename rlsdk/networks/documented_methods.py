"""Methods of documented policies that policies here do not have: each raises an error that says what to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from torch import nn

from rlsdk.errors import UsageError

INSTEAD = {
    "forward": "model.predict(observation) acts",
    "predict": "model.predict(observation) acts",
    "extract_features": "networks are the parts of the policy: print(model.policy) lists them",
    "reset_noise": "policies draw their noise themselves, see sde_sample_freq",
    "set_training_mode": "parts switch their modes themselves",
}
T = TypeVar("T", bound=type)


def explains_documented_methods(policy: T) -> T:
    """The methods of `INSTEAD` that the class lacks raise UsageError when they are called; a class decorator too."""
    for name in INSTEAD:
        if getattr(policy, name, nn.Module.forward) is nn.Module.forward:
            setattr(policy, name, _explaining(policy.__name__, name))
    return policy


def _explaining(kind: str, name: str) -> Callable[..., NoReturn]:
    def method(self: object, *_: Any, **__: Any) -> NoReturn:
        raise UsageError(f"{kind} has no method {name!r}; {INSTEAD[name]}")

    method.__name__ = name
    return method
