"""Runs that learn from a data set: the setting that names it, and its environment if no other is given."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsdk.environments import make_vec_env
from rlsdk.environments.gymnasium_adapter import refusal
from rlsdk.errors import RlsdkError, SettingsError, shown
from rlsdk.registry import AlgorithmSpec
from rlsdk.runtime.output import print_line
from rlsdk.settings import DataReference, data_in, data_settings, load_settings


def with_dataset(spec: AlgorithmSpec, settings: Mapping[str, object], path: Path) -> dict[str, Any]:
    """Return `settings` with the data set at `path`.

    If they already contain a digest, as the settings of an earlier run do, the data set must have it.

    Raises:
        SettingsError: the algorithm has no setting for a data set, or several.
        ArtifactError: there is no such file, or it is another data set.
    """
    names = data_settings(spec.config_type)
    if len(names) != 1:
        why = (
            f"has several, give one of {', '.join(names)} with --set"
            if names
            else "does not learn from one, leave it out"
        )
        raise SettingsError(f"--dataset {path}: {spec.id} {why}")
    ((name, kind),) = names.items()
    stored = settings.get(name)
    digest = stored.get("digest") if isinstance(stored, Mapping) else None
    found = kind.at(path, digest)
    return {**settings, name: {"path": found.path, "digest": found.digest}}


def require_same_dataset(spec: AlgorithmSpec, config: Path, given: Mapping[str, object]) -> None:
    """Check that the data sets `given` to a resumed run (by setting) are those of its settings file `config`.

    Nothing is compared if the settings file cannot be read.

    Raises:
        SettingsError: one is another data set.
        ArtifactError: there is no such file.
    """
    stored: Mapping[str, object] = {}
    with contextlib.suppress(SettingsError):
        stored = load_settings(config)
    for name, found in data_in(spec.config_type, given).items():
        known = stored.get(name)
        if isinstance(known, Mapping) and known.get("digest", found.digest) != found.digest:
            raise SettingsError(
                f"the run learns from the data set {shown(known.get('name'), 50)}, digest {shown(known['digest'], 12)}, and"
                f" {found.path} is another, digest {shown(found.digest, 12)}; give the file that it began with, or begin"
                " another run"
            )


def dataset_of(spec: AlgorithmSpec, settings: Mapping[str, object]) -> DataReference | None:
    """Return the first data set in the settings that has a file; None if there is none. Raises as `DataReference.of`."""
    given = data_in(spec.config_type, settings).values()
    return next((dataset for dataset in given if dataset.path is not None), None)


def environment_of(spec: AlgorithmSpec, settings: Mapping[str, object]) -> str | None:
    """Return the environment of a run for which none is given: that of its data set.

    None if this environment cannot be made here, or has other spaces than the data set. A message names the reason.

    Raises:
        SettingsError: the settings name no data set either.
        ArtifactError: as `DataReference.contents`.
    """
    dataset = dataset_of(spec, settings)
    if dataset is None:
        more = ", or --dataset FILE to learn from recorded episodes" if data_settings(spec.config_type) else ""
        raise SettingsError(f"no environment: add --env ID, for example --env Pendulum-v1{more}")
    name, spaces = dataset.contents()
    problem = "the data set names none" if name is None else _problem(name, spaces)
    if problem is None:
        return name
    print_line(f"no environment, so no evaluation: {problem}; --env ID gives one")
    return None


def _problem(name: str, spaces: tuple[object, object]) -> str | None:
    """Return why the environment that a data set names cannot be used; None if it can."""
    try:
        # Before it is made: the data set may come from someone else.
        if (why := refusal(name)) is not None:
            return f"{shown(name)} of the data set may not choose what is imported or read: {why}"
        env = make_vec_env(name)
    except RlsdkError as error:
        return f"{shown(name)} of the data set cannot be made here ({error})"
    try:
        same = (env.observation_space, env.action_space) == spaces
        return None if same else f"{name!r} of the data set has other spaces than its episodes"
    finally:
        env.close()
