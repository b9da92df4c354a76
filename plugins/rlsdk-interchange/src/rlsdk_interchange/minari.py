"""Import and export data sets of Minari (extra `minari`)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import gymnasium
import numpy as np
import torch

from rlsdk.environments import to_gymnasium, to_space
from rlsdk.errors import ArtifactError, RlsdkError, SettingsError, one_line, shown
from rlsdk.records import Features
from rlsdk.runtime import pip_install
from rlsdk.spaces import choice_places, map_leaves
from rlsdk_datasets import RecordedEpisode, open_episodes, write_episodes
from rlsdk_interchange.recorded_data import MASKS, episode_of

PER_EPISODE = 2**14
"""Bytes that an episode takes on disk in HDF5 beyond its numbers, at most: three episodes of CartPole-v1 took 10,000 each."""


class MinariDataset(Protocol):
    """The methods of `minari.MinariDataset` that are used."""

    @property
    def observation_space(self) -> object: ...
    @property
    def action_space(self) -> object: ...
    def iterate_episodes(self) -> Iterable[object]: ...


def import_minari(dataset: str | MinariDataset, path: str | Path) -> Path:
    """Write the episodes of a Minari data set to a data set of rlsdk, and return its path.

    `infos["action_mask"]` [T + 1, A] of an episode becomes its action masks.

    Args:
        dataset: the data set, or the id of a data set that `minari download` has downloaded.
        path: the file to write; `.safetensors` is appended to a name without suffix.

    Raises:
        SettingsError: the extra is missing, or `dataset` is something else.
        ArtifactError: there is no such data set, it is damaged, or the file cannot be written.
        ObservationError: an episode does not fit the spaces of the data set.
    """
    found = _loaded(dataset) if isinstance(dataset, str) else dataset
    if not hasattr(found, "iterate_episodes"):
        raise SettingsError(
            f"{type(found).__name__} is not a data set of Minari; give its id, such as 'mujoco/hopper/medium-v0', or what"
            " minari.load_dataset returns"
        )
    called = dataset if isinstance(dataset, str) else type(found).__name__
    try:
        observations, actions = to_space(found.observation_space), to_space(found.action_space)
        seeds = _seeds(found)
        episodes = [
            replace(episode_of((observations, actions), episode, f"episode {number}"), seed=seeds.get(number))
            for number, episode in enumerate(found.iterate_episodes())
        ]
    except RlsdkError:
        raise
    except Exception as error:  # h5py raises any error where a file is not whole
        problem = one_line(f"{type(error).__name__}: {error}", 300)
        raise ArtifactError(f"Minari's data set {shown(called, 100)} is damaged: {problem}") from None
    name = getattr(getattr(found, "env_spec", None), "id", None)
    return write_episodes(path, episodes, observations, actions, name if isinstance(name, str) else None)


def _seeds(dataset: MinariDataset) -> dict[int, int]:
    """Return number of the episode -> its seed, for episodes whose seed Minari stored."""
    read = getattr(getattr(dataset, "storage", None), "get_episode_metadata", None)
    if read is None:
        return {}
    found = [entry.get("seed") for entry in read(getattr(dataset, "episode_indices", ()))]
    return {number: int(seed) for number, seed in enumerate(found) if isinstance(seed, int | np.integer)}


def _loaded(name: str) -> MinariDataset:
    try:
        import minari
    except ImportError:
        raise SettingsError(
            f"Minari's data sets need its library: {pip_install('rlsdk-interchange[minari]')}"
        ) from None
    try:
        found: MinariDataset = minari.load_dataset(name)
    except Exception as error:  # Minari's errors for missing and damaged data sets
        reason = one_line(" ".join(str(error).split()), 300)
        raise ArtifactError(f"Minari has no data set {name!r} here: {reason}; minari download {name}") from None
    return found


def export_minari(path: str | Path, name: str, **description: str) -> None:
    """Write a data set of rlsdk to Minari's local data sets, under `name` (`namespace/name-v0`).

    Action masks become `infos["action_mask"]`. The environment is named if its id is registered with gymnasium.

    Args:
        path: the data set of rlsdk.
        name: the id of the new Minari data set. It must end with a version.
        **description: further arguments of `minari.create_dataset_from_buffers`, such as `algorithm_name` and `author`.

    Raises:
        SettingsError: the extra is missing, or `name` has no version.
        ArtifactError: the file is missing or damaged, or Minari raises an error.
    """
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
        from minari.storage import get_dataset_path
    except ImportError:
        raise SettingsError(
            f"Minari's data sets need its library: {pip_install('rlsdk-interchange[minari]')}"
        ) from None
    _require_version(name)
    episodes = open_episodes(path)
    # Minari sorts the keys of a Dict when it reads spaces; entries of masks go by position, so they are sorted too
    sorted_spaces = [to_gymnasium(each, by_name=True) for each in (episodes.observation_space, episodes.action_space)]
    places = choice_places(to_space(sorted_spaces[1]), episodes.action_space)
    buffers = [
        EpisodeBuffer(
            id=number,
            seed=episode.seed,
            observations=_arrays(episodes.observation_space, episode.observations),
            actions=_arrays(episodes.action_space, episode.actions),
            rewards=episode.rewards.tolist(),
            terminations=_last(episode, episode.terminated),
            truncations=_last(episode, not episode.terminated),
            infos=None if (masks := episode.action_masks) is None else {MASKS: masks.numpy()[:, places or slice(None)]},
        )
        for number, episode in enumerate(episodes)
    ]
    name_of_env = episodes.file.header.environment
    if name_of_env in gymnasium.registry:
        description = {"env": name_of_env, **description}
    spaces = dict(zip(("observation_space", "action_space"), sorted_spaces, strict=True))
    place = get_dataset_path(name)
    _require_space(place, 2 * episodes.file.header.path.stat().st_size + PER_EPISODE * (len(buffers) + 4))
    existed = place.exists()
    try:
        minari.create_dataset_from_buffers(name, buffers, **spaces, **description)
    except Exception as error:  # any error of Minari
        if not existed:
            shutil.rmtree(place, ignore_errors=True)  # a part of the data set, which would be in the way of another try
        reason = one_line(" ".join(str(error).split()), 300)
        raise ArtifactError(f"Minari does not take {name!r}: {type(error).__name__}: {reason}") from error


def _require_version(name: str) -> None:
    if not re.search(r"-v\d+$", name):
        raise SettingsError(
            f"name = {name!r} has no version; names of Minari end with one, such as 'demo/cart-pole-v0'"
        )


def _require_space(place: Path, needed: int) -> None:
    """Check that `needed` bytes are free on the disk of `place`: where a disk becomes full, HDF5 can end the process.

    Raises:
        ArtifactError: it does not fit.
    """
    root = next(above for above in place.absolute().parents if above.exists())
    if (free := shutil.disk_usage(root).free) < needed:
        raise ArtifactError(
            f"{place} would take up to {needed:,} bytes, and its disk has {free:,} free; free some space, or set"
            " MINARI_DATASETS_PATH to another place"
        )


def _arrays(space: object, features: Features) -> Features:
    return map_leaves(space, lambda path, leaf, rows: rows.numpy(), features)  # type: ignore[arg-type]


def _last(episode: RecordedEpisode, flag: bool) -> list[bool]:
    """Return a flag for each step: `flag` for the last step, False for the others."""
    flags = torch.zeros(len(episode.rewards), dtype=torch.bool)
    flags[-1] = flag
    found: list[bool] = flags.tolist()
    return found
