"""Import agents from files of stable-baselines3 and sb3-contrib. Settings and weights are read; no code in the file is run.

A file stores functions, classes and spaces as pickles. `rlsdk_interchange.sb3_pickles` reads those of known objects without
running them. The environment provides the spaces. Settings that cannot be read have their defaults unless they are given.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rlsdk.environments import connect
from rlsdk.errors import ArtifactError, PluginError, SettingsError, shown
from rlsdk.registry import load as load_plugin
from rlsdk.settings import describe, merge
from rlsdk.spaces import Dict, Space
from rlsdk_interchange.sb3_encoders import (
    IMAGES,
    convolves_arrays,
    image_encoder,
    placed,
    require_plain,
    require_same_axes,
)
from rlsdk_interchange.sb3_file import ACTIVATION, Foreign, read_sb3
from rlsdk_interchange.sb3_networks import (
    Translated,
    actor_critic,
    critic_count,
    deterministic_actor_critic,
    hidden,
    layers_of,
    network_of,
    renamed,
    require_names,
    soft_actor_critic,
    stacked_critics,
)
from rlsdk_interchange.sb3_statistics import read_statistics, set_statistics

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.environments import ConnectedEnv
    from rlsdk.registry import AlgorithmSpec

__all__ = [
    "ACTIVATION",
    "IMAGES",
    "Foreign",
    "Translated",
    "actor_critic",
    "critic_count",
    "deterministic_actor_critic",
    "hidden",
    "image_encoder",
    "import_sb3",
    "layers_of",
    "network_of",
    "read_sb3",
    "renamed",
    "require_names",
    "require_plain",
    "soft_actor_critic",
    "stacked_critics",
]
OURS = ("policy", "env", "device", "policy_kwargs", "normalize", "frame_stack", "tensorboard_log")
"""Settings that are not taken from a file."""
_LEARNED = {"log_ent_coef": "ent_coef"}
"""Learned number in a file -> the setting that is its initial value. The number is ignored if the setting is given."""


def import_sb3(
    path: str | Path, algorithm: str, env: object, *, vecnormalize: str | Path | None = None, **changes: object
) -> Agent:
    """Return an agent whose predictions are those of the agent in the file, with its seed and number of steps.

    Args:
        path: the `.zip` file.
        algorithm: id of the plugin for the new agent, such as `trpo`.
        env: the environment of the training, or any other with the same spaces.
        vecnormalize: the file that `VecNormalize.save` wrote, or an `.npz` file with `mean`, `var` and `count` of the
            observations' statistics.
        changes: settings that replace those of the file, or that the file stores as a pickle of an unknown object.

    Raises:
        ArtifactError: there is no such file, or its weights do not fit.
        SettingsError: the plugin has no import, or a setting is wrong.
    """
    from rlsdk.agent import from_parameters

    spec = load_plugin(algorithm)
    if spec.from_sb3 is None:
        raise SettingsError(f"{algorithm} has no counterpart in stable-baselines3 or sb3-contrib to import from")
    foreign, envs = read_sb3(path), connect(env)
    name = env if isinstance(env, str) else None
    try:
        weights = placed(foreign.weights, foreign.observations, envs.observation_space)
    except ValueError as error:
        raise _of_other_spaces(path, spec, name, error) from None
    taken = {each: weight for each, weight in weights.items() if _LEARNED.get(each) not in changes}
    translated = _translated(spec, taken, envs, path)
    settings = _settings(spec, foreign, translated, envs.observation_space)
    settings = {name: value for name, value in settings.items() if name not in changes or name == "policy_kwargs"}
    statistics = None if vecnormalize is None else read_statistics(Path(vecnormalize))
    if statistics is not None:
        settings["normalize"] = statistics.settings
    try:
        agent = from_parameters(spec.id, translated.parameters, env=envs, **merge(settings, changes))
    except ArtifactError as error:
        raise _of_other_spaces(path, spec, name, error) from None
    try:
        require_same_axes(foreign.weights, foreign.observations, agent.preprocessing.build_context.observation_space)
    except ValueError as error:
        raise _of_other_spaces(path, spec, name, error) from None
    agent.env_name = name or agent.env_name
    _warn_of_unread(path, sorted((set(foreign.pickled) & _known(spec)) - set(changes)))
    if hasattr(type(agent), "exploration_rate") and isinstance(rate := foreign.settings.get("exploration_rate"), float):
        agent.exploration_rate = rate
    # what an agent file can hold
    if type(steps := foreign.settings.get("num_timesteps")) is int and 0 <= steps <= 2**62:
        agent.num_timesteps = steps
    if statistics is not None:
        set_statistics(agent, statistics, Path(str(vecnormalize)))
    return agent


def _translated(spec: AlgorithmSpec, weights: Mapping[str, object], envs: ConnectedEnv, path: str | Path) -> Translated:
    """Return the plugin's translation of the weights.

    Raises:
        ArtifactError: the plugin does not support these weights.
        PluginError: the plugin returns something else than a `Translated`.
    """
    assert spec.from_sb3 is not None
    try:
        translated = spec.from_sb3(weights, envs.action_space)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError):
        some = ", ".join(sorted(weights)[:3])
        raise ArtifactError(
            f"{path} holds no {spec.id} agent: its weights are called {some}, ...; name the algorithm it was trained with"
        ) from None
    except ValueError as error:
        raise ArtifactError(f"{path} cannot be imported as {spec.id}: {error}") from None
    if not isinstance(translated, Translated):
        raise PluginError(f"{spec.id!r} is broken: its from_sb3 returned {shown(translated, 60)}; return a Translated")
    return translated


def _known(spec: AlgorithmSpec) -> set[str]:
    """Return the settings of the plugin that may come from a file."""
    return {field.name for field in attrs.fields(spec.config_type)} - set(OURS)


def _settings(spec: AlgorithmSpec, foreign: Foreign, translated: Translated, space: Space) -> dict[str, Any]:
    """Return the settings in the file, with the network settings that follow from its weights and the observations."""
    settings = {name: value for name, value in foreign.settings.items() if name in _known(spec)}
    networks = {name: value for name, value in foreign.networks.items() if name in _network_settings(spec.config_type)}
    if not convolves_arrays(foreign.weights, space):
        networks.pop("features_extractor_kwargs", None)
    policy = translated.policy.replace("Mlp", "MultiInput" if isinstance(space, Dict) else "Mlp")
    return merge(settings, {"policy": policy, "policy_kwargs": merge(networks, translated.networks)})


def _of_other_spaces(path: str | Path, spec: AlgorithmSpec, env: str | None, error: Exception) -> ArtifactError:
    """Return the error for weights that do not fit the networks of `spec` in the environment."""
    return ArtifactError(
        f"{path} holds no {spec.id} agent with the spaces of {env or 'the environment given'}: {error}; name the"
        " environment and the algorithm that it was trained with"
    )


def _network_settings(config_type: type[object]) -> set[str]:
    """Return the names of the entries of `policy_kwargs`."""
    return {
        entry.name for setting in describe(config_type) if setting.name == "policy_kwargs" for entry in setting.children
    }


def _warn_of_unread(path: str | Path, settings: list[str]) -> None:
    if settings:
        warnings.warn(
            f"{path} holds {', '.join(settings)} only as a pickle of an unknown object, which is not read: defaults are used,"
            " or give them",
            stacklevel=3,
        )
