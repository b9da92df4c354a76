"""A setting that names a data set of recorded episodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import get_args, get_type_hints

import attrs

from rlsdk.errors import ArtifactError, SettingsError, require_file_name
from rlsdk.settings.suffixes import suffix_of

SUFFIX = ".safetensors"
"""Suffix of data sets. A path may be given without it."""
OTHER_FORMATS = (".npz", ".npy", ".h5", ".hdf5", ".pkl", ".pt", ".csv", ".json", ".zip", ".rlsdk")
"""Suffixes of other file formats, which are refused even if the file contains episodes."""
MAX_HEADER = 16 * 2**20
"""Largest header of a data set, in bytes."""


@attrs.frozen
class Dataset:
    """A data set: its name, digest and path. Settings give the path: `dataset="demo.safetensors"`.

    Agent files store `name` and `digest`, never the path. To continue training, give the path again.
    `rlsdk.buffers.open_episodes` reads the episodes when they are needed.
    """

    name: str
    """Name of the file without folder and suffix."""
    digest: str
    """SHA-256 of the file's header. The header contains the digests of all other contents."""
    path: str | None = attrs.field(default=None, eq=False)
    """Path of the file. None if the agent was loaded without the data set: it can predict, but not train."""

    @staticmethod
    def at(path: str | PathLike[str], digest: str | None = None) -> Dataset:
        """Return the data set in the file at `path`, which may lack the suffix. Only the header of the file is read.

        Raises:
            ArtifactError: there is no such file, it is not a data set, or its digest differs from `digest`.
        """
        place = data_file(path)
        found = hashlib.sha256(header_bytes(place)).hexdigest()
        if digest is not None and found != digest:
            raise ArtifactError(
                f"{place} is another data set than expected: its digest begins with {found[:12]}, not {digest[:12]}; give the"
                " right file, or rlsdk.settings.Dataset.at(path) to use this one"
            )
        return Dataset(place.stem, found, str(place))

    @staticmethod
    def named_in(config_type: type[object], settings: Mapping[str, object]) -> dict[str, Dataset]:
        """Return setting -> data set, for the `settings` of a config class that name one.

        Raises:
            SettingsError: a value is neither a path nor a table of a data set.
            ArtifactError: as `at`.
        """
        given = {name: settings.get(name) for name in dataset_names(config_type)}
        return {name: as_dataset(value) for name, value in given.items() if value is not None}

    @staticmethod
    def file_at(path: Path) -> Path | None:
        """Return the file of the data set at `path`, which may lack the suffix; None if `path` is of something else.

        Raises:
            ArtifactError: no file can have this name.
        """
        place = data_file(path)
        return place if place.suffix == SUFFIX and not path.is_dir() else None

    def to_setting(self) -> dict[str, str]:
        """Return the table that files store: name and digest."""
        return {"name": self.name, "digest": self.digest}


def suffixed(path: Path) -> Path:
    """Return the path, with the suffix of data sets added if it has no suffix.

    Raises:
        ArtifactError: no file can have this name.
    """
    require_file_name(path)
    return path.with_name(path.name + SUFFIX) if path.name and not suffix_of(path) else path


def data_file(path: str | PathLike[str]) -> Path:
    """Return the file of a data set. `demo` means `demo.safetensors`, unless a file `demo` exists.

    Raises:
        ArtifactError: as `suffixed`.
    """
    place = Path(path)
    whole = suffixed(place)
    return whole if whole.is_file() and not place.is_file() else place


def as_dataset(value: object) -> Dataset:
    """Return a data set, given one, its path, a table with `path` and `digest`, or a table with `name` and `digest`.

    Files store the last form.

    Raises:
        SettingsError: the value has none of these forms.
        ArtifactError: as `Dataset.at`.
    """
    if isinstance(value, Dataset):
        return value
    if isinstance(value, str | PathLike):
        return Dataset.at(value)
    texts = isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())
    if isinstance(value, Mapping) and texts and set(value) <= {"path", "name", "digest"}:
        if "path" in value:
            return Dataset.at(value["path"], value.get("digest"))
        if {"name", "digest"} == set(value):
            return Dataset(value["name"], value["digest"])
    raise SettingsError(
        f"{value!r} is not a data set; give the path of a file of recorded episodes, or a table of its path and digest"
    )


def dataset_names(config_type: type[object]) -> list[str]:
    """Return the names of the settings of a config class that are data sets."""
    hints = get_type_hints(config_type)
    return [name for name, hint in hints.items() if hint is Dataset or Dataset in get_args(hint)]


def header_bytes(path: Path) -> bytes:
    """Return the header of a safetensors file.

    Raises:
        ArtifactError: the file is missing, unreadable, incomplete, in another format, or its header exceeds `MAX_HEADER`.
    """
    try:
        if not path.is_file():
            raise ArtifactError(
                f"there is no data set {path}; give the place of the file, or write one with"
                " rlsdk_interchange.record_episodes"
            )
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if path.suffix.lower() in OTHER_FORMATS:
                raise ArtifactError(
                    f"{path} is not a data set of rlsdk; read its arrays, and write them with rlsdk.buffers.write_episodes"
                )
            if size < 8 or length > size - 8:
                raise ArtifactError(
                    f"{path} is not a whole data set: {size} bytes, a header of {length}; take another copy"
                )
            if length > MAX_HEADER:
                raise ArtifactError(f"{path} is refused: its header has {length} bytes, more than {MAX_HEADER}")
            return stream.read(length)
    except OSError as error:
        raise ArtifactError(f"the data set {path} cannot be read: {error.strerror or error}") from None
