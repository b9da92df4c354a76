"""The file of recorded episodes: one safetensors file, whose metadata describe it (docs/datasets.md).

The tensors hold the episodes one after another, with S steps and E episodes in total. For an episode of T steps, observations
and masks have T + 1 rows: the last row is the observation after the last step.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlsdk.environments import to_space
from rlsdk.errors import ArtifactError, ObservationError, SettingsError
from rlsdk.interfaces import require_inside
from rlsdk.records import Features
from rlsdk.spaces import (
    Box,
    Dict,
    Discrete,
    MultiDiscrete,
    Space,
    Tuple,
    choices_of,
    dtype_of,
    from_json,
    leaf_spaces,
    map_leaves,
    shape_of,
    to_json,
)
from rlsdk.tree import leaves
from rlsdk_datasets.dataset import data_file, header_bytes, suffixed

KIND, FORMAT = "rlsdk-episodes", 1
ENTRY = "rlsdk"
"""The key of the metadata of a file under which rlsdk stores its JSON document."""
UNSEEDED = -1
IN_MEMORY = 64 * 2**20
"""Columns of this many bytes or more are copied to an unnamed temporary file and mapped from it, not held in memory."""
CHUNK = 16 * 2**20
STEPS = {"reward": torch.float32, "terminated": torch.bool, "truncated": torch.bool}


@dataclass(frozen=True, slots=True)
class Header:
    """The description of a file of episodes, which is read without its tensors."""

    path: Path
    digest: str
    observation_space: Space
    action_space: Space
    environment: str | None
    sums: dict[str, str]
    """Name of each tensor -> its SHA-256 digest."""


def write_episodes(
    path: str | Path,
    episodes: Sequence[RecordedEpisode],
    observation_space: object,
    action_space: object,
    environment: str | None = None,
) -> Path:
    """Write episodes to a file and return its path; `.safetensors` is appended to a name without suffix.

    The fields of episodes may also be arrays or lists instead of tensors, and spaces may also be those of gymnasium.

    Raises:
        SettingsError: there are no episodes, or only some of them have masks.
        UnsupportedSpaceError: a space is none of `rlsdk.spaces` or gymnasium, or is not supported.
        ObservationError: an episode does not fit the spaces, or has numbers that are not finite.
        ArtifactError: the file cannot be written.
    """
    if not episodes:
        raise SettingsError("a data set needs at least one episode")
    observation_space, action_space = _own(observation_space, "observation_space"), _own(action_space, "action_space")
    spaces = observation_space, action_space
    episodes = [checked_episode(spaces, episode, f"episode {number}") for number, episode in enumerate(episodes)]
    with_masks = {episode.action_masks is not None for episode in episodes}
    if len(with_masks) > 1:
        raise SettingsError("a data set holds action masks for all of its episodes or for none")
    lengths = torch.tensor([len(episode.rewards) for episode in episodes])
    seeds = torch.tensor([UNSEEDED if episode.seed is None else episode.seed for episode in episodes])
    ends = lengths.cumsum(0) - 1
    terminated = torch.zeros(int(lengths.sum()), dtype=torch.bool)
    terminated[ends] = torch.tensor([episode.terminated for episode in episodes])
    truncated = torch.zeros_like(terminated)
    truncated[ends] = ~terminated[ends]
    tensors = {"length": lengths, "seed": seeds, "terminated": terminated, "truncated": truncated}
    tensors["reward"] = torch.cat([episode.rewards for episode in episodes])
    for prefix, space, parts in (
        ("observation", observation_space, [episode.observations for episode in episodes]),
        ("action", action_space, [episode.actions for episode in episodes]),
    ):
        for (name, _), rows in zip(_named(space, prefix), zip(*map(leaves, parts), strict=True), strict=True):
            tensors[name] = torch.cat(rows)
    if True in with_masks:
        tensors["action_mask"] = torch.cat(
            [episode.action_masks for episode in episodes if episode.action_masks is not None]
        )
    document = {
        "kind": KIND,
        "format": FORMAT,
        "environment": environment,
        "observation_space": to_json(observation_space),
        "action_space": to_json(action_space),
        "sha256": {name: _digest(tensor) for name, tensor in tensors.items()},
    }
    return _write(Path(path), tensors, document)


def _own(space: object, name: str) -> Space:
    """A space of `rlsdk.spaces`; one of gymnasium is converted. Raises UnsupportedSpaceError if it is neither."""
    return space if isinstance(space, Space) else to_space(space, name)


def _named(space: Space, prefix: str) -> list[tuple[str, Space]]:
    """(name of the tensor, leaf) of each leaf of a space, in the order of `tree.leaves`."""
    paths = list(leaf_spaces(space, prefix))
    numbers = leaves(
        map_leaves(space, lambda path, _: torch.tensor([name for name, _ in paths].index(path)), path=prefix)
    )
    return [paths[int(number)] for number in numbers]


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data).hexdigest()


def require_place(path: str | Path) -> Path:
    """Check that a data set can be written to `path`, before its episodes are recorded. No file is created.

    Returns the file that `write_episodes` writes: `.safetensors` is appended to a name without suffix.

    Raises:
        ArtifactError: no file can be written to `path`.
    """
    target = suffixed(Path(path))
    above = next((folder for folder in target.absolute().parents if folder.exists()), target)
    if target.is_dir() or not above.is_dir() or not os.access(above, os.W_OK):
        where = f"{target} is a folder" if target.is_dir() else f"{above} is not a folder that files can be written to"
        raise ArtifactError(f"cannot write {target}: {where}; choose a writable place with free space")
    return target


def _write(path: Path, tensors: dict[str, Tensor], document: dict[str, object]) -> Path:
    """Write tensors [rows, ..] to a temporary file in the folder of the target, then rename it to the target."""
    from safetensors import SafetensorError  # at the first use of a file: training alone does without its megabyte
    from safetensors.torch import save_file

    target = require_place(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, temporary, metadata={ENTRY: json.dumps(document, allow_nan=False)})
        temporary.replace(target)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"cannot write {target}: {error}; choose a writable place with free space") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return target


def read_header(path: str | Path) -> Header:
    """Read the description in a file of episodes.

    Raises:
        ArtifactError: the file is missing, truncated, damaged or of another kind.
    """
    from safetensors import SafetensorError, safe_open

    place = data_file(path)
    raw = header_bytes(place)
    try:
        with safe_open(place, "pt") as stream:  # checks offsets, shapes and dtypes against the file's size
            metadata = stream.metadata() or {}
            names = set(stream.keys())
        if ENTRY not in metadata:
            raise ArtifactError(
                f"{place} holds no recorded episodes; rlsdk_interchange.record_episodes writes such files"
            )
        document = json.loads(metadata[ENTRY])
        if document["kind"] != KIND or document["format"] != FORMAT:
            raise ArtifactError(
                f"{place} has kind {document['kind']!r} and format {document['format']!r}, this rlsdk reads {KIND!r},"
                f" format {FORMAT}"
            )
        sums, environment = document["sha256"], document["environment"]
        if not isinstance(sums, dict) or set(sums) != names or not all(isinstance(text, str) for text in sums.values()):
            raise ValueError("its tensors are not those it lists")
        if not isinstance(environment, str | None):
            raise ValueError("its environment is not a text")
        spaces = from_json(document["observation_space"]), from_json(document["action_space"])
        return Header(place, hashlib.sha256(raw).hexdigest(), *spaces, environment, sums)
    except ArtifactError:
        raise
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(
            f"{place} is not a whole data set ({type(error).__name__}: {error}); take another copy, or record it again"
        ) from None


class EpisodeFile:
    """The tensors of a file of episodes. Each is read and checked at its first use.

    Changes of the file after that have no effect: small tensors are held in memory, large ones are mapped from an unnamed copy.
    """

    def __init__(self, header: Header) -> None:
        """Raises ArtifactError if the lengths of the episodes are missing or invalid."""
        self.header = header
        self._read: dict[str, Tensor] = {}
        self.length = self._column("length", torch.int64, (-1,))
        self.steps, self.episodes = int(self.length.sum()), len(self.length)
        if not self.episodes or int(self.length.min()) < 1 or self.length.double().sum() != self.steps:
            raise self._damaged("its episodes have no lengths")
        self.start = self.length.cumsum(0) - self.length
        """int64 [E]: the position of the first step of each episode."""

    def _damaged(self, problem: str) -> ArtifactError:
        return ArtifactError(f"{self.header.path} is damaged: {problem}; take another copy, or record it again")

    def step_column(self, name: str) -> Tensor:
        """The column [S] called `name`: `reward` (float32), `terminated` or `truncated` (bool)."""
        column = self._column(name, STEPS[name], (self.steps,))
        if name == "reward" and not bool(column.isfinite().all()):
            raise self._damaged("its rewards are not all finite")
        return column

    def seeds(self) -> Tensor:
        """The seeds of the episodes, int64 [E]; -1 for an episode without one."""
        return self._column("seed", torch.int64, (self.episodes,))

    def masks(self) -> Tensor | None:
        """The action masks, bool [S + E, A]; None if the file has none."""
        if "action_mask" not in self.header.sums:
            return None
        choices = sum(choices_of(self.header.action_space))
        return self._column("action_mask", torch.bool, (self.steps + self.episodes, choices))

    def observations(self) -> Features:
        """The observations [S + E, ..], nested like their space."""
        return self._features(self.header.observation_space, "observation", self.steps + self.episodes)

    def actions(self) -> Features:
        """The actions [S, ..], nested like their space."""
        return self._features(self.header.action_space, "action", self.steps)

    def _features(self, space: Space, prefix: str, rows: int) -> Features:
        new = {name for name, _ in leaf_spaces(space, prefix)} - set(self._read)

        def column(path: str, leaf: Space) -> Tensor:
            return self._column(path, getattr(torch, dtype_of(leaf)), (rows, *shape_of(leaf)))

        found = map_leaves(space, column, path=prefix)
        if new:
            if not all(bool(leaf.isfinite().all()) for leaf in leaves(found) if leaf.is_floating_point()):
                raise self._damaged(f"its {prefix}s hold NaN or infinite numbers")
            try:
                require_inside(space, found, f"{self.header.path}: recorded {prefix}s")
            except ValueError as error:
                raise self._damaged(str(error)) from None
        return found

    def _column(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """A tensor [rows, ..] of the file, after checking its digest, dtype and shape; -1 in `shape` allows any length."""
        from safetensors import SafetensorError

        if name not in self._read:
            try:
                column = self._checked(name)
            except (OSError, SafetensorError) as error:
                raise self._damaged(f"{name} cannot be read ({error})") from None
            free = -1 in shape and column.dim() == len(shape)
            if column.dtype != dtype or (tuple(column.shape) != shape and not free):
                raise self._damaged(f"{name} has shape {tuple(column.shape)} and dtype {column.dtype}")
            self._read[name] = column
        return self._read[name]

    def _checked(self, name: str) -> Tensor:
        """Read a tensor [rows, ..] in chunks into a copy, and compare its digest."""
        from safetensors import safe_open

        if name not in self.header.sums:
            raise self._damaged(f"it has no {name}")
        digest = hashlib.sha256()
        with safe_open(self.header.path, "pt") as stream:
            rows = stream.get_slice(name)
            shape: list[int] = rows.get_shape()
            if not shape:
                raise self._damaged(f"{name} is a single number")
            like: Tensor = rows[0:0]
            row = like.element_size() * int(np.prod(shape[1:], dtype=np.int64))
            target, step, start = _room(tuple(shape), like.dtype), max(1, CHUNK // max(row, 1)), 0
            while start < shape[0]:
                chunk: Tensor = rows[start : start + step]
                digest.update(chunk.contiguous().reshape(-1).view(torch.uint8).numpy().data)
                target[start : start + step] = chunk
                start += step
        if digest.hexdigest() != self.header.sums[name]:
            raise self._damaged(f"{name} does not match its digest")
        return target


def _room(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An uninitialized tensor [rows, ..] in memory, or in a mapped temporary file from `IN_MEMORY` bytes on."""
    like = torch.empty(0, dtype=dtype)
    size = int(np.prod(shape, dtype=np.int64)) * like.element_size()
    if size < IN_MEMORY:
        return torch.empty(shape, dtype=dtype)
    with tempfile.TemporaryFile() as copy:
        pages = np.memmap(copy, np.uint8, mode="w+", shape=(size,))
    return torch.from_numpy(pages).view(dtype).reshape(shape)


Array = np.ndarray[Any, Any]
MAX_SEED = 2**63 - 1
OUTSIDE = "recorded actions outside the Box of their space are clipped into it, as environments clip them"
FINAL = ": one row more than there are steps, the last is what the last step led to"


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEpisode:
    """One episode of T steps as the environment returned it, before any preprocessing."""

    observations: Features  # [T + 1, ..], nested like the observation space
    actions: Features  # [T, ..], nested like the action space, in its units
    rewards: Tensor  # float32 [T]
    terminated: bool
    """Whether the last step terminated the episode; otherwise the episode was truncated there."""
    action_masks: Tensor | None = None  # bool [T + 1, A]
    seed: int | None = None
    """The seed with which the environment was reset for this episode; None: there was none, or it is unknown."""


def checked_episode(spaces: tuple[Space, Space], episode: RecordedEpisode, where: str) -> RecordedEpisode:
    """The episode with its fields as tensors in the dtypes of `spaces` (of observations, of actions).

    The fields of `episode` may be arrays or lists. Box actions outside their bounds are clipped.

    Raises:
        ObservationError: a field does not fit the spaces or the other fields; the message begins with `where`.
    """
    rewards = _numbers(episode.rewards, f"{where}, rewards").astype(np.float32)
    if rewards.ndim != 1 or not len(rewards) or not np.isfinite(rewards).all():
        raise ObservationError(
            f"{where}: rewards of shape {rewards.shape} must be finite numbers, one for each step, and at least one"
        )
    steps = len(rewards)
    return RecordedEpisode(
        _leaves(spaces[0], episode.observations, (steps + 1, FINAL), f"{where}, observations"),
        _clipped(spaces[1], _leaves(spaces[1], episode.actions, (steps, ""), f"{where}, actions")),
        torch.from_numpy(rewards),
        _ended(episode.terminated, where),
        _masks(spaces[1], episode.action_masks, steps, where),
        _seed(episode.seed, where),
    )


def _numbers(value: object, where: str) -> Array:
    """`value` as an array; raises ObservationError if it is not an array of numbers."""
    try:
        array = value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)
    except (ValueError, TypeError) as error:  # for example rows of different lengths
        raise ObservationError(f"{where}: {error}; give an array of numbers with one row for each step") from None
    if array.dtype.kind not in "biuf":
        raise ObservationError(f"{where}: values of type {array.dtype}, expected numbers")
    return array


def _leaves(space: Space, values: Features, rows: tuple[int, str], where: str) -> Features:
    """Arrays [rows, ..] as tensors in the dtypes of the space, nested like it. `rows`: (number, text for error messages)."""

    def convert(path: str, leaf: Space, value: object) -> Tensor:
        """The value of a leaf as a tensor [rows, *shape]."""
        if isinstance(value, dict | tuple):
            raise TypeError(f"{type(value).__name__} at {path}")
        array = _numbers(value, path)
        if array.shape != (wanted := (rows[0], *shape_of(leaf))):
            raise ObservationError(f"{path}: an array of shape {array.shape}, expected {wanted}{rows[1]}")
        converted = _converted(array, dtype_of(leaf), path)
        try:
            require_inside(leaf, converted, path)
        except ValueError as error:
            raise ObservationError(f"{error}; give the space that the episodes were recorded with") from None
        return converted

    try:
        return map_leaves(space, convert, values, path=where)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ObservationError(f"{where} are not nested as the space {space}: {error}") from None


def _clipped(space: Space, actions: Features) -> Features:
    """The actions [T, ..], clipped into the Boxes of their space as environments do; warns if an action was outside."""

    def clip(_: str, leaf: Space, rows: Tensor) -> Tensor:
        """The actions of a leaf [T, *shape]; those of a Box are clipped."""
        if not isinstance(leaf, Box):
            return rows
        inside = torch.minimum(torch.maximum(rows, torch.tensor(leaf.low)), torch.tensor(leaf.high))
        if not torch.allclose(inside.double(), rows.double()):
            warnings.warn(OUTSIDE, stacklevel=2)
        return inside

    return map_leaves(space, clip, actions)


def _converted(array: Array, dtype: str, where: str) -> Tensor:
    """An array [rows, *shape] as a tensor in the dtype of its space.

    Values that the cast would change raise an ObservationError: images with values from 0 to 1, for example, would be black in
    uint8.
    """
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ObservationError(f"{where}: not all numbers are finite")
    with np.errstate(invalid="ignore", over="ignore"):
        converted = array.astype(dtype)
    if converted.dtype.kind == "f":
        changed = array.dtype.kind == "f" and not np.isfinite(converted).all()
    else:
        changed = array.dtype != converted.dtype and not np.array_equal(converted, array)
    if changed:
        raise ObservationError(
            f"{where}: numbers of type {array.dtype} from {array.min()} to {array.max()} do not fit the space's {dtype};"
            " scale or round them, or give the space that they were recorded with"
        )
    return torch.from_numpy(converted)


def _ended(terminated: object, where: str) -> bool:
    if not isinstance(terminated, bool | np.bool_):
        raise ObservationError(
            f"{where}: terminated = {terminated!r} must be True or False: whether the last step ended the task"
        )
    return bool(terminated)


def _masks(space: Space, masks: object, steps: int, where: str) -> Tensor | None:
    """Action masks as bool [T + 1, A]."""
    if masks is None:
        return None
    found, wanted = _numbers(masks, f"{where}, action masks"), (steps + 1, sum(choices_of(space)))
    if found.shape != wanted:
        raise ObservationError(
            f"{where}: action masks of shape {found.shape}, expected {wanted}: one row for each observation, one entry for"
            " each choice"
        )
    return torch.from_numpy(found.astype(bool))


def _seed(seed: object, where: str) -> int | None:
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= MAX_SEED:
        raise ObservationError(f"{where}: seed = {seed!r} must be a whole number from 0 to {MAX_SEED}, or None")
    return int(seed)


def forbidden_row(space: Space, actions: Features, masks: Tensor) -> int | None:
    """The first of S steps whose mask forbids its action; None if there is none.

    Args:
        space: the action space.
        actions: [S, ..] in environment units, nested like the space.
        masks: bool [S, A], True where an action is allowed.
    """
    sizes = torch.tensor(choices_of(space))
    columns = sizes.cumsum(0) - sizes + _choices(space, actions)
    wrong = ~masks.gather(1, columns).all(1)
    return int(wrong.nonzero()[0]) if bool(wrong.any()) else None


def _choices(space: Space, actions: Features) -> Tensor:
    """The actions as choices that count from 0, int64 [S, choices], in the order of masks."""
    if isinstance(space, Dict):
        return torch.cat([_choices(child, actions[key]) for key, child in space.spaces.items()], 1)
    if isinstance(space, Tuple):
        return torch.cat([_choices(child, part) for child, part in zip(space.spaces, actions, strict=True)], 1)
    if isinstance(space, Box):
        return torch.zeros(len(actions), 0, dtype=torch.int64)
    chosen: Tensor = actions.long().reshape(len(actions), -1)
    return chosen - torch.tensor(space.start) if isinstance(space, Discrete | MultiDiscrete) else chosen
