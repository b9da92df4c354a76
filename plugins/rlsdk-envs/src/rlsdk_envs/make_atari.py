"""Vector environments of an Atari game with the usual preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium

from rlsdk.environments.vector.connected import ConnectedEnv
from rlsdk.environments.vectorize import make_vec_env
from rlsdk_envs.atari import AtariWrapper, require_games


def make_atari_env(  # the signature of stable-baselines3
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    *,
    monitor_dir: str | Path | None = None,
    wrapper_kwargs: Mapping[str, Any] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    **more: Any,
) -> ConnectedEnv:
    """`n_envs` copies of an Atari game, each inside `AtariWrapper`, made by `make_vec_env`.

    Args:
        env_id: gymnasium id of ale-py, such as `ALE/Breakout-v5` or `BreakoutNoFrameskip-v4`. The wrapper skips frames, not
            the game.
        n_envs: number of copies.
        seed: seed of the first reset that gets no seed.
        monitor_dir: folder for one monitor file per copy.
        wrapper_kwargs: arguments of `AtariWrapper`.
        env_kwargs: arguments of `gymnasium.make`.
        more: further arguments of `make_vec_env`, such as `vectorization`.

    Raises:
        SettingsError: an argument is unknown. EnvironmentFault: there is no such game, or ale-py or OpenCV is missing.
    """

    def make() -> AtariWrapper:
        require_games()
        return AtariWrapper(gymnasium.make(env_id, **{"frameskip": 1, **(env_kwargs or {})}), **(wrapper_kwargs or {}))

    return make_vec_env(make, n_envs, seed, monitor_dir=monitor_dir, **more)
