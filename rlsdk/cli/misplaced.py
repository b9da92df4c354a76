"""Errors for settings that are options of the command, and for settings files of rl-baselines3-zoo given with --config."""

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
"""Name that users give as a setting, here or in rl-baselines3-zoo -> the option of `rlsdk run`."""


def require_settings(spec: AlgorithmSpec, settings: Mapping[str, object], config: Path | None) -> None:
    """Check that no name is an option of the command instead of a setting.

    Raises:
        SettingsError: a name is an option, or `config` is a file of rl-baselines3-zoo. The message names the option to use.
    """
    own = {field.name for field in attrs.fields(spec.config_type)}
    for name, value in settings.items():
        if name in own:
            continue
        if config is not None and isinstance(value, Mapping) and "n_timesteps" in value:
            raise SettingsError(f"{config} is a file of rl-baselines3-zoo: give it with --preset instead of --config")
        if name in OPTION_OF:
            raise SettingsError(f"{name} is an option of the command, not a setting: give it with {OPTION_OF[name]}")
