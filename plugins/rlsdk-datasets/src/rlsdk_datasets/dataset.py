"""The setting that names a data set, and the place and the header of its file. Imports no torch."""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rlsdk.errors import ArtifactError, require_file_name
from rlsdk.settings import DataReference

if TYPE_CHECKING:
    from rlsdk.spaces import Space

SUFFIX = ".safetensors"
"""Suffix of data sets. A path may be given without it."""
OTHER_FORMATS = (".npz", ".npy", ".h5", ".hdf5", ".pkl", ".pt", ".csv", ".json", ".zip", ".rlsdk")
"""Suffixes of other file formats, which are refused even if the file contains episodes."""
MAX_HEADER = 16 * 2**20
"""Largest header of a data set, in bytes."""


@attrs.frozen
class Dataset(DataReference):
    """A data set of recorded episodes, as a setting: its name, digest and path. See `rlsdk.settings.DataReference`.

    A config class has a field of this type, and users give a path: `dataset="demo.safetensors"`. `open_episodes` reads the
    episodes when they are needed. The digest is the SHA-256 of the file's header, which contains the digests of all other
    contents.
    """

    @staticmethod
    def identify(path: str | PathLike[str]) -> tuple[Path, str]:
        """Return (the file at `path`, which may lack the suffix, its digest). Only the header of the file is read.

        Raises:
            ArtifactError: there is no such file, or it is not a data set.
        """
        place = data_file(path)
        return place, hashlib.sha256(header_bytes(place)).hexdigest()

    def contents(self) -> tuple[str | None, tuple[Space, Space]]:
        """Return (id of the recorded environment or None, (observation space, action space)). Raises as `read_header`."""
        from rlsdk_datasets.episode_file import read_header  # imports torch

        header = read_header(self.path or self.name)
        return header.environment, (header.observation_space, header.action_space)

    @staticmethod
    def file_at(path: Path) -> Path | None:
        """Return the file of the data set at `path`, which may lack the suffix; None if `path` is of something else.

        Raises:
            ArtifactError: no file can have this name.
        """
        place = data_file(path)
        return place if place.suffix == SUFFIX and not path.is_dir() else None


def suffixed(path: Path) -> Path:
    """Return the path, with the suffix of data sets added if it has no suffix.

    Raises:
        ArtifactError: no file can have this name.
    """
    require_file_name(path)
    # what begins with a digit is a part of the name, as in `demo-0.5`
    bare = not path.suffix or path.suffix[1:2].isdigit()
    return path.with_name(path.name + SUFFIX) if path.name not in ("", "..") and bare else path


def data_file(path: str | PathLike[str]) -> Path:
    """Return the file of a data set. `demo` means `demo.safetensors`, unless a file `demo` exists.

    Raises:
        ArtifactError: as `suffixed`.
    """
    place, whole = Path(path), suffixed(Path(path))
    return whole if whole.is_file() and not place.is_file() else place


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
                    f"{path} is not a data set of rlsdk; read its arrays, and write them with rlsdk_datasets.write_episodes"
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
