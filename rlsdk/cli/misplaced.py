"""Settings that are options of the command, or a whole file of another kind: the error names the option."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from rlsdk.errors import SettingsError
from rlsdk.registry import AlgorithmSpec

OPTION_OF = {
    "steps": "--steps",
    "n_timesteps": "--steps",
    "total_timesteps": "--steps",
    "n_envs": "--n-envs",
    "eval_every": "--eval-every",
    "eval_freq": "--eval-every",
    "eval_episodes": "--eval-episodes",
    "env_kwargs": "--env-kwargs",
    "env_wrapper": "--wrapper",
    "out": "--out",
    "threads": "--threads",
}
"""Names that people give as settings, here and in rl-baselines3-zoo -> the option of `rlsdk run`."""


def require_settings(spec: AlgorithmSpec, settings: Mapping[str, object], config: Path | None) -> None:
    """Check that the names are settings, where an option has the same meaning.

    Raises:
        SettingsError: one is an option, or `config` is a file of rl-baselines3-zoo.
    """
    own = {field.name for field in attrs.fields(spec.config_type)}
    for name, value in settings.items():
        if name in own:
            continue
        if config is not None and isinstance(value, Mapping) and "n_timesteps" in value:
            raise SettingsError(f"{config} is a file of rl-baselines3-zoo: give it with --preset instead of --config")
        if name in OPTION_OF:
            raise SettingsError(f"{name} is an option of the command, not a setting: give it with {OPTION_OF[name]}")
