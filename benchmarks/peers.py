"""Translates rlsdk's settings for stable-baselines3, sb3-contrib and SBX. This module does not import rlsdk."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np


def translated(settings: Mapping[str, Any], actions: Any, library: str = "stable_baselines3") -> dict[str, Any]:
    """Translate settings to those of the peer `library`. `actions`: the action space."""
    return {name: _translated(name, copy.deepcopy(value), actions, library) for name, value in settings.items()}


def _translated(name: str, value: Any, actions: Any, library: str) -> Any:
    if name == "policy_kwargs" and "activation_fn" in value:
        return {**value, "activation_fn": _activation(value["activation_fn"], library)}
    if isinstance(value, str) and value.startswith("lin_"):
        first = float(value.removeprefix("lin_"))
        return lambda remaining: first * remaining
    if name == "action_noise":
        from stable_baselines3.common.noise import NormalActionNoise

        # arrays of the shape of the actions: an array of one number gives all dimensions the same noise
        return NormalActionNoise(np.full(actions.shape, value["mean"]), np.full(actions.shape, value["sigma"]))
    return value


def _activation(name: str, library: str) -> Any:
    """The activation `name`: a torch module, or a function of flax for SBX."""
    if library == "sbx":
        return getattr(import_module("flax.linen"), name)
    return getattr(import_module("torch.nn"), {"relu": "ReLU", "tanh": "Tanh"}[name])


def peer_class(algorithm: str) -> Any:
    """The class of an algorithm in stable-baselines3 or sb3-contrib.

    Raises:
        SystemExit: neither has the algorithm.
    """
    for library in ("stable_baselines3", "sb3_contrib"):
        for name, found in vars(import_module(library)).items():
            if isinstance(found, type) and name.lower() == algorithm.replace("-", ""):
                return found
    raise SystemExit(f"neither stable-baselines3 nor sb3-contrib has {algorithm}")


def normalized(envs: Any, normalize: Any, gamma: float) -> Any:
    """Wrap environments in the peer's VecNormalize. `normalize`: further arguments of the wrapper, or True."""
    from stable_baselines3.common.vec_env import VecNormalize

    return VecNormalize(envs, gamma=gamma, **(normalize if isinstance(normalize, dict) else {}))
