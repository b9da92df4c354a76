"""Arguments that stable-baselines3 documents and that have no effect here: only values without an effect are accepted."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
import numpy as np

from rlsdk.errors import SettingsError, UsageError, shown, suggest

if TYPE_CHECKING:
    from rlsdk.registry import AlgorithmSpec

EVALUATION = "evaluate with a callback: learn(..., callback=rlsdk.callbacks.EvalCallback(env, eval_freq=steps))"
OF_CONSTRUCTORS: dict[str, tuple[tuple[object, ...], str, tuple[str, ...]]] = {
    "_init_setup_model": ((True, False), "", ("on-policy", "off-policy", "population")),
    "create_eval_env": ((False, None), EVALUATION, ("on-policy", "off-policy")),
    "rollout_buffer_class": (
        (None,),
        "rollouts are records, rlsdk.records.Rollout, which every update gets",
        ("on-policy",),
    ),
    "rollout_buffer_kwargs": (
        (None, {}),
        "rollouts are records, rlsdk.records.Rollout, without settings",
        ("on-policy",),
    ),
}
"""Argument of constructors -> (accepted values, replacement for other values, families of algorithms that have it)."""
OF_LEARN: dict[str, tuple[tuple[object, ...], str]] = {
    "eval_env": ((None,), EVALUATION),
    "eval_freq": ((None, -1), EVALUATION),
    "n_eval_episodes": ((None, 5), EVALUATION),
    "eval_log_path": ((None,), EVALUATION),
}
"""Argument of `learn` -> (accepted values, replacement for other values)."""
LEARN = (
    "total_timesteps",
    "callback",
    "log_interval",
    "tb_log_name",
    "reset_num_timesteps",
    "progress_bar",
    "threads",
    "schedule_until",
    "exact_steps",
)
ASYNC_EVAL = (
    "async_eval is not needed and has no effect: candidates are played side by side, in other processes where the environment"
    ' is made by make_vec_env(..., vectorization="async")'
)


def without_effect(spec: AlgorithmSpec, arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments of a constructor without those in `OF_CONSTRUCTORS`, unless the algorithm has a setting of that name.

    Raises:
        UsageError: an argument that has no effect has a value that is not accepted.
    """
    own = {field.name for field in attrs.fields(spec.config_type)}
    rest = dict(arguments)
    for name, (accepted, instead, families) in OF_CONSTRUCTORS.items():
        if name in rest and name not in own and spec.family in families:
            _require(name, rest.pop(name), accepted, instead)
    return rest


def check_learn_arguments(spec: AlgorithmSpec, arguments: Mapping[str, object], progress_bar: object) -> None:
    """Check arguments of `learn` that rlsdk does not have, and the type of `progress_bar`.

    Raises:
        UsageError: an argument of stable-baselines3 has a value that is not accepted. SettingsError: an argument is unknown,
        or `progress_bar` is not a bool.
    """
    if not isinstance(progress_bar, bool | int | np.bool_):
        raise SettingsError(f"progress_bar = {progress_bar!r} is not a bool; after reset_num_timesteps give names")
    for name, value in arguments.items():
        if name in OF_LEARN:
            _require(f"learn({name}=)", value, *OF_LEARN[name])
        elif name == "async_eval" and spec.family == "population":
            if value is not None:
                warnings.warn(ASYNC_EVAL, stacklevel=3)
        else:
            raise SettingsError(f"learn has no argument {name!r}; {suggest(name, LEARN)}")


def _require(name: str, value: object, accepted: tuple[object, ...], instead: str) -> None:
    if not any(value is good or (type(value) is type(good) and value == good) for good in accepted):
        raise UsageError(f"{name} = {value!r} has no counterpart here; {instead}")


def positive(value: object, name: str, *, least: int = 1) -> int:
    """The value as an int. Whole floats such as 1e6 are accepted.

    Raises:
        SettingsError: it is not a whole number of at least `least`.
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    whole = whole or (isinstance(value, float | np.floating) and float(value).is_integer())
    if isinstance(value, int | float | np.integer | np.floating) and whole and value >= least:
        return int(value)
    kind = "positive whole number" if least == 1 else f"whole number of at least {least}"
    raise SettingsError(f"{name} = {shown(value, 60)} must be a {kind}")


def replaced_settings(custom_objects: object) -> dict[str, object]:
    """The argument `custom_objects` of `load`; raises SettingsError where it is another kind of value."""
    if not isinstance(custom_objects, Mapping | None):
        raise SettingsError(
            f"custom_objects = {shown(custom_objects, 50)} is not a table; write load(..., custom_objects={{'setting': value}})"
        )
    return dict(custom_objects or {})
