"""Our settings as stable-baselines3, sb3-contrib and SBX take them. It imports no rlsdk."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np


def translated(name: str, value: Any, library: str = "stable_baselines3") -> Any:
    """A setting as the peer takes it."""
    if name == "policy_kwargs" and "activation_fn" in value:
        return {**value, "activation_fn": _activation(value["activation_fn"], library)}
    if isinstance(value, str) and value.startswith("lin_"):
        first = float(value.removeprefix("lin_"))
        return lambda remaining: first * remaining
    if name == "action_noise":
        from stable_baselines3.common.noise import NormalActionNoise

        return NormalActionNoise(np.array([value["mean"]]), np.array([value["sigma"]]))  # the same for every entry
    return value


def _activation(name: str, library: str) -> Any:
    """The activation of that name: a torch module, for SBX a function of jax."""
    if library == "sbx":
        return getattr(import_module("flax.linen"), name)
    return getattr(import_module("torch.nn"), {"relu": "ReLU", "tanh": "Tanh"}[name])


def normalized(envs: Any, normalize: Any, gamma: float) -> Any:
    """The environments in the peer's wrapper; `normalize` holds further arguments of it, or is True."""
    from stable_baselines3.common.vec_env import VecNormalize

    return VecNormalize(envs, gamma=gamma, **(normalize if isinstance(normalize, dict) else {}))
