"""Trains an agent of stable-baselines3 with the settings of a preset of rlsdk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import normalized, peer_class, translated

EPISODES = 10
SAVE_EVERY = 25_000
"""The number of environment steps between two saves."""


def trained_peer(
    algorithm: str, env: str, seed: int, settings: Mapping[str, Any], size: tuple[int, int], keep: Path | None = None
) -> float:
    """Train an agent of the peer and return its mean return.

    size: (number of environments, environment steps).
    keep: a folder for the agent, its replay buffer and its normalizer, saved every SAVE_EVERY steps. An interrupted
        training continues from them. None: nothing is saved. stable-baselines3 stores neither random state nor
        environment, so that a continued training differs from an uninterrupted one.
    """
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    n_envs, steps = size
    envs: Any = make_vec_env(env, n_envs, seed=seed)
    given = translated(settings, envs.action_space)
    normalize = given.pop("normalize", False)
    others: Any = make_vec_env(env, 1, seed=seed + 1000)
    if normalize:
        envs = normalized(envs, normalize, given.get("gamma", 0.99))
        others = normalized(others, {"training": False, "norm_reward": False}, 0.99)
    kind = peer_class(algorithm)
    saved = _saved(kind, envs, keep) if keep else None
    model = saved or kind("MlpPolicy", envs, seed=seed, device="cpu", **given)
    model.learn(steps - model.num_timesteps, callback=_saving(model, keep) if keep else None, reset_num_timesteps=False)
    if normalize:
        others.obs_rms = model.get_vec_normalize_env().obs_rms
    return float(np.mean(evaluate_policy(model, others, EPISODES)[0]))


def _saving(model: Any, keep: Path) -> Any:
    """Make a callback that saves the agent in `keep` every SAVE_EVERY steps."""

    def save(_locals: Any, _globals: Any) -> bool:
        if model.num_timesteps % SAVE_EVERY < model.n_envs:
            _save(model, keep)
        return True

    return save


def _save(model: Any, keep: Path) -> None:
    """Save to a new folder, then replace the older save by it."""
    new = keep.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    model.save(new / "agent.zip")
    if hasattr(model, "replay_buffer"):
        model.save_replay_buffer(new / "replay.pkl")
    if model.get_vec_normalize_env() is not None:
        model.get_vec_normalize_env().save(new / "normalizer.pkl")
    shutil.rmtree(keep, ignore_errors=True)
    new.rename(keep)


def _saved(kind: Any, envs: Any, keep: Path) -> Any:
    """Load the agent in `keep`; None if there is none."""
    if not keep.exists():
        return None
    from stable_baselines3.common.vec_env import VecNormalize

    if (keep / "normalizer.pkl").exists():
        envs = VecNormalize.load(str(keep / "normalizer.pkl"), envs.venv)
    model = kind.load(keep / "agent.zip", env=envs, device="cpu")
    if (keep / "replay.pkl").exists():
        model.load_replay_buffer(keep / "replay.pkl")
    return model
