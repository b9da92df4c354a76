"""The settings that --set, --config and --dataset give, and errors for names that are options instead of settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from rlsdk.errors import SettingsError
from rlsdk.registry import AlgorithmSpec
from rlsdk.settings import load_settings, merge, parse_assignments

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


def settings_from(
    spec: AlgorithmSpec, assignments: Iterable[str] | None, dataset: Path | None = None, config: Path | None = None
) -> dict[str, Any]:
    """Return the settings of an algorithm that a command line gives.

    Args:
        spec: the algorithm.
        assignments: the values of --set, each `NAME=VALUE`. They replace those of `config`.
        dataset: the value of --dataset: a data set to learn from.
        config: the value of --config: a settings file.

    Raises:
        SettingsError: an assignment or the file is wrong, a name is an option of the command, or the algorithm does not learn
            from a data set.
        ArtifactError: `dataset` is not a data set.
    """
    stored: dict[str, object] = load_settings(config) if config else {}
    given = parse_assignments(assignments or ())
    _require_settings(spec, {**stored, **given}, config)
    settings: dict[str, Any] = merge(stored, given)
    if dataset is None:
        return settings
    from rlsdk.experiments.recorded_run import with_dataset  # imports torch

    return with_dataset(spec, settings, dataset)


def _require_settings(spec: AlgorithmSpec, settings: Mapping[str, object], config: Path | None) -> None:
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
