"""Reads the running statistics of `VecNormalize` from its pickle, which is not run, or from an `.npz` file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from torch import Tensor

from rlsdk.errors import ArtifactError, SettingsError
from rlsdk_interchange.pickle_description import Call, described
from rlsdk_interchange.sb3_file import MAX_SETTINGS
from rlsdk_interchange.sb3_pickles import array

if TYPE_CHECKING:
    from rlsdk.agent import Agent

_SETTINGS = ("norm_obs", "norm_reward", "clip_obs", "clip_reward", "gamma", "epsilon")
_NAMES = {"mean": "mean", "var": "variance", "count": "count"}
"""Name there -> name in the state of rlsdk's normalizer."""
Moments = dict[str, Tensor]
"""Mean [..], variance [..] and count [], float64."""


@attrs.frozen
class Statistics:
    """The settings of `normalize`, the moments of each array of an observation, and those of the discounted return.

    `observation` has the moments of each array by its path, such as `observation['camera']`; `reward` is None if rewards are
    not normalized.
    """

    settings: dict[str, object]
    observation: dict[str, Moments]
    reward: Moments | None = None


def read_statistics(path: Path) -> Statistics:
    """Read a file. Raises ArtifactError if it holds no statistics."""
    try:
        return _of_arrays(path) if zipfile.is_zipfile(path) else _of_pickle(path)
    except FileNotFoundError:
        raise ArtifactError(f"there is no file {path}; give the file that VecNormalize.save(path) wrote") from None
    except Exception as error:  # a damaged file can raise any error
        raise ArtifactError(f"{path} holds no statistics (mean, var, count): {error}") from None


def set_statistics(agent: Agent, statistics: Statistics, path: Path) -> None:
    """Set the running statistics of the agent's normalization.

    Raises:
        ArtifactError: they do not fit its observations.
        SettingsError: the agent's settings turn off the normalization that the statistics are for.
    """
    normalizer = agent.preprocessing.normalizer
    held = () if normalizer is None else normalizer.state_dict()["observation"]
    if normalizer is None or (statistics.observation and not held):
        setting = "normalize = false" if normalizer is None else "normalize.norm_obs = false"
        raise SettingsError(
            f"{setting} is set, so the statistics in {path} are not used; omit this setting, or the file"
        )
    state = normalizer.state_dict()
    moments = statistics.observation
    if len(held) != len(moments) or (len(held) > 1 and set(moments) != set(normalizer.moments)):
        count = f"{len(moments)} array(s); the observations have {len(held)} normalized ones"
        raise ArtifactError(f"{path} has statistics of {count}: name the environment of the training")
    if len(moments) > 1:  # the agent numbers its arrays in the order of its space; a file may have others
        moments = {path: moments[path] for path in normalizer.moments}
    changed: dict[str, Any] = {**state, "observation": dict(zip(held, moments.values(), strict=True))}
    if statistics.reward is not None and "reward" in state:
        changed["reward"] = {**state["reward"], **statistics.reward}
    try:
        normalizer.load_state_dict(changed)
    except ValueError as error:
        raise ArtifactError(f"{path}: {error}") from None


def _of_arrays(path: Path) -> Statistics:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.file_size > MAX_SETTINGS:
                raise ValueError(f"its {info.filename!r} is {info.file_size} bytes long, more than {MAX_SETTINGS}")
    with np.load(path, allow_pickle=False) as stored:
        moments = {own: torch.as_tensor(np.asarray(stored[name], np.float64)) for name, own in _NAMES.items()}
    return Statistics({"norm_reward": False}, {"observation": moments})


def _of_pickle(path: Path) -> Statistics:
    if (size := path.stat().st_size) > MAX_SETTINGS:
        raise ValueError(f"it is {size} bytes long, more than {MAX_SETTINGS}")
    found = described(path.read_bytes())
    if not isinstance(found, Call) or found.name != "stable_baselines3.common.vec_env.vec_normalize.VecNormalize":
        raise ValueError("it is not a pickle of VecNormalize")
    settings = {name: _plain(found.attribute(name)) for name in _SETTINGS}
    observation: dict[str, Moments] = {}
    if settings["norm_obs"]:
        each = found.attribute("obs_rms")
        if isinstance(each, dict):
            settings["norm_obs_keys"] = sorted(each)
            observation = {f"observation[{key!r}]": _moments(each[key]) for key in each}
        else:
            observation = {"observation": _moments(each)}
    reward = _moments(found.attribute("ret_rms")) if settings["norm_reward"] else None
    return Statistics(settings, observation, reward)


def _plain(value: object) -> object:
    """The value of a setting; numbers of numpy become numbers of Python."""
    return value if isinstance(value, bool | int | float) else float(array(value))


def _moments(node: object) -> Moments:
    """The moments in the description of a `RunningMeanStd`."""
    if not isinstance(node, Call):
        raise ValueError("it has no running statistics")
    return {own: torch.as_tensor(array(node.attribute(name))) for name, own in _NAMES.items()}
