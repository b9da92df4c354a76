"""Finds wrappers by name: those of gymnasium, of packages, and `package.module:Class` of any module. It may have arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import gymnasium

from rlsdk.environments.adapters.checks import layers_of
from rlsdk.environments.vector.connected import ConnectedEnv
from rlsdk.errors import (
    EnvironmentFault,
    RlsdkError,
    SettingsError,
    UsageError,
    message_of,
    raise_fault,
    raise_stop,
    shown,
    suggest,
)
from rlsdk.registry.loading import extension, extensions, is_offered
from rlsdk.runtime.packages import named_module, pip_install
from rlsdk.settings.load import wrapper_call

Wrapper = Callable[[Any], Any]
"""A function that takes an environment and returns an environment. `Any`, because users' wrappers have their own types."""


PACKAGES = dict.fromkeys(
    ("ActionMasker", "CheckNan", "CombinedActions", "MaskVelocity", "Monitor", "TimeFeature"), "rlsdk-envs"
)
"""Wrapper that another package of this project offers -> that package."""


def wrapper_of(choice: str | Wrapper) -> Wrapper:
    """The wrapper that `choice` names, with its arguments, as in `Twice(by=5)`; a callable is returned unchanged.

    Raises:
        SettingsError: there is no wrapper of that name, its arguments are not literals, or `choice` is not callable.
    """
    if not isinstance(choice, str):
        if not callable(choice):
            raise SettingsError(f"wrapper {choice!r} is neither a name nor a function of an environment")
        return choice
    name, arguments = wrapper_call(choice)
    made = _import_wrapper(name) if ":" in name else known_wrapper(name)
    return partial(made, **arguments) if arguments else made


def known_wrapper(name: str) -> Wrapper:
    """The wrapper of gymnasium, or of an installed package, with this name.

    Raises:
        SettingsError: there is none; the message names the package of this project that has it.
        PluginError: the package that offers it is broken.
    """
    # `__all__` also lists a module, in lower case.
    own = [each for each in gymnasium.wrappers.__all__ if each[0].isupper()]
    if name in own:
        made: Wrapper = getattr(gymnasium.wrappers, name)
        return made
    # After gymnasium, so that no package can take over one of its names.
    if is_offered("wrappers", name):
        return extension("wrappers", name)
    if name in PACKAGES:
        fix = pip_install(PACKAGES[name])
        raise SettingsError(f"wrapper {name!r} is in {PACKAGES[name]}, which is not installed; install it: {fix}")
    raise SettingsError(
        f"unknown wrapper {name!r}: neither package.module:Class, nor a name in gymnasium.wrappers or of an installed"
        f" package; {suggest(name, (*own, *extensions('wrappers'), *PACKAGES))}"
    )


def wrapped(wrapper: Wrapper, environment: object) -> gymnasium.Env[object, object]:
    """`wrapper(environment)`.

    Raises:
        EnvironmentFault: it raised, or gave no environment.
    """
    bare = wrapper.func if isinstance(wrapper, partial) else wrapper
    name = getattr(bare, "__name__", None) or shown(wrapper)
    try:
        made = wrapper(environment)
    except BaseException as error:
        advice = "; a wrapper is called with the environment and the arguments in its name, as in"
        advice += f" {name}(ARGUMENT=VALUE), or those of functools.partial({name}, ...)"
        raise_fault(error, f"wrapper {name}", ending=advice)
    if not isinstance(made, gymnasium.Env):
        raise EnvironmentFault(
            f"wrapper {name} gave {shown(made)}, not a gymnasium.Env; return the wrapped environment"
        )
    return made


def _import_wrapper(choice: str) -> Wrapper:
    module, _, name = choice.rpartition(":")
    try:
        found: object = getattr(named_module(module), name)
    except RlsdkError:
        raise
    except BaseException as error:
        # code of the module may raise any error
        raise_stop(error)
        raise SettingsError(
            f"wrapper {choice!r} cannot be imported: {type(error).__name__}: {message_of(error)}; it must be"
            " package.module:Class of an installed package, of the working directory or of a folder in PYTHONPATH, or"
            " ./FILE.py:Class"
        ) from None
    if not callable(found):
        raise SettingsError(f"wrapper {choice!r} must be a class or a function, not a {type(found).__name__}")
    made: Wrapper = found
    return made


STATISTICS = {"obs_rms": "norm_obs", "return_rms": "norm_reward", "ret_rms": "norm_reward"}
"""Attribute of a wrapper that normalizes by running statistics -> the part of `normalize` that does the same."""


def warn_of_statistics(env: ConnectedEnv, what: str) -> None:
    """Warn that environments normalize by running statistics of their own, as gymnasium's `NormalizeObservation` does.

    No file has these statistics, and each copy has others. Frozen ones (`update_running_mean = False`) are not meant.
    `what` names the environments in the message.
    """
    found = [name for name in STATISTICS if _has(env, name)]
    if not found or _is_frozen(env):
        return
    parts = ", ".join(dict.fromkeys(STATISTICS[name] for name in found))
    warnings.warn(
        f"{what} {env.name!r} normalizes by running statistics of its own ({', '.join(found)}), which are in no agent file and"
        f" differ from copy to copy; leave that wrapper out and give the agent normalize=True ({parts})",
        stacklevel=3,
    )


def _has(env: ConnectedEnv, name: str) -> bool:
    """Whether an environment, a wrapper of it, or a wrapper of the vector environment has the attribute `name`."""
    if any(hasattr(layer, name) for layer in layers_of(vars(env).get("env"))):
        return True
    try:
        return any(env.env_method("has_wrapper_attr", name))
    except Exception:
        # without separate environments, and environments of users raise any error
        return False


def _is_frozen(env: ConnectedEnv) -> bool:
    try:
        updates = [env.env.update_running_mean] if hasattr(env, "env") else env.get_attr("update_running_mean")
    except Exception:
        # not a wrapper of gymnasium
        return False
    return all(update is False for update in updates)


MOVING = ("reset", "step", "map", "set_state")
"""Methods that disturb the running episodes."""


class EnvInTraining:
    """Gives read access to the environment of a running training, and refuses calls such as `step` and `reset`.

    After such a call, the training would store a transition that never happened.
    """

    def __init__(self, env: ConnectedEnv) -> None:
        self.trained_in = env
        """The environment of the training."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # `copy` looks up such methods before `trained_in` exists
            raise AttributeError(name)
        return refuse_move if name in MOVING else getattr(self.trained_in, name)


def without_guard(env: ConnectedEnv | None) -> ConnectedEnv | None:
    """The environment inside an `EnvInTraining`; any other environment is returned unchanged."""
    return env.trained_in if isinstance(env, EnvInTraining) else env


def refuse_move(*_: object, **__: object) -> NoReturn:
    """Raises UsageError, because the environment is in use by a training."""
    raise UsageError("a training is running in this environment; use another environment for steps during training")
