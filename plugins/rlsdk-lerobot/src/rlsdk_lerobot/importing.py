"""Import and export data sets of LeRobot (extra `pyarrow`): states, actions and rewards, without pictures.

A data set is a folder. `meta/info.json` describes the features. Files `data/*/*.parquet` have a row for each frame, with the
observation before the action. Version 3.0 describes episodes in `meta/episodes`, versions 2.0 and 2.1 in JSON lines. LeRobot
does not store the observation after the last action. `export_lerobot` puts it, the seed and the masks into columns of
`meta/episodes` and the spaces into `meta/info.json`, which other programs skip, so an import of an exported data set is exact.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments import connect
from rlsdk.errors import ArtifactError, ResourceError, RlsdkError, SettingsError, message_of, one_line, shown
from rlsdk.runtime import available_bytes, pip_install
from rlsdk.spaces import Box, Dict, Discrete, MultiDiscrete, Space, from_json, leaf_spaces, map_leaves, shape_of
from rlsdk_datasets import RecordedEpisode, write_episodes

Array = NDArray[Any]
Columns = Mapping[str, Array]
OBSERVATION, ACTION, REWARD, DONE, TRUNCATED = "observation", "action", "next.reward", "next.done", "next.truncated"
STATE = "observation.state"
"""The usual name of an observation that is one vector."""
EPISODE, FRAME = "episode_index", "frame_index"
OWN = "rlsdk"
"""The entry of meta/info.json with the spaces, and the prefix of the columns of meta/episodes that LeRobot lacks."""
MASK = "action_mask"
NUMBERS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
MOST_INFO, MOST_WIDTH = 2**24, 2**20
"""The largest meta/info.json in bytes, and the most numbers of one feature in one frame."""


def import_lerobot(folder: str | Path, path: str | Path, env: object = None) -> Path:
    """Write the episodes of a data set of LeRobot to a data set of rlsdk, and return its path.

    Videos, pictures and texts are left out, with a warning that names them. The last observation of an episode is repeated
    after its last action, except in data sets of `export_lerobot`. Without `next.reward`, rewards are 0. An episode is
    terminated if its last `next.done` is true and its last `next.truncated` is not.

    Args:
        folder: the folder of the data set, version 2.0, 2.1 or 3.0.
        path: the file to write; `.safetensors` is appended to a name without suffix.
        env: the environment whose spaces the data have, as algorithms take it. None: the spaces in the data set if it has some;
            otherwise observations have no bounds, and actions those of the recorded ones.

    Raises:
        SettingsError: the extra is missing.
        ArtifactError: there is no such data set, it is damaged, or the file cannot be written.
        ObservationError: an episode does not fit the spaces. ResourceError: it does not fit into memory.
    """
    reader = parquet_module()
    root = Path(folder)
    info = _info(root)
    features, left_out = _features(info, root)
    columns = _columns(reader, root, features)
    bounds = list(_episodes(columns, root))
    own = _own(reader, root, info, len(bounds))
    spaces = _spaces(env, own.pop("spaces"), features, columns, root)
    name = info[OWN].get("environment") if isinstance(info.get(OWN), dict) else None
    if left_out:
        warnings.warn(
            f"left out of {root.name}, because data sets have numbers only: {', '.join(left_out)}", stacklevel=2
        )
    if REWARD not in features:
        warnings.warn(f"{root.name} has no {REWARD}, so all rewards are 0", stacklevel=2)
    try:
        episodes = [
            _episode(spaces, {key: rows[start:end] for key, rows in columns.items()}, own, number)
            for number, (start, end) in enumerate(bounds)
        ]
    except (TypeError, ValueError) as error:  # rows of meta/episodes that are not those of the features
        raise _damaged(root, f"meta/episodes: {one_line(message_of(error), 200)}") from None
    return write_episodes(path, episodes, *spaces, name if isinstance(name, str) else None)


def parquet_module() -> Any:
    """The module pyarrow.parquet. Raises SettingsError if it is not installed."""
    try:
        from pyarrow import parquet
    except ImportError:
        fix = pip_install("rlsdk-lerobot[pyarrow]")
        raise SettingsError(f"data sets of LeRobot need pyarrow: {fix}") from None
    return parquet


# --- the description --------------------------------------------------------------------------------------------------


def _damaged(root: Path, problem: str) -> ArtifactError:
    return ArtifactError(f"LeRobot's data set {shown(str(root), 100)} is damaged: {problem}")


def _info(root: Path) -> dict[str, Any]:
    """The content of meta/info.json.

    Raises:
        ArtifactError: it is missing or damaged, or of another version.
    """
    place = root / "meta" / "info.json"
    if not place.is_file():
        raise ArtifactError(f"{shown(str(root), 100)} has no file meta/info.json, so it is not a data set of LeRobot")
    try:
        if place.stat().st_size > MOST_INFO:
            raise _damaged(root, f"meta/info.json is larger than {MOST_INFO:,} bytes")
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(root, f"meta/info.json: {one_line(message_of(error), 200)}") from None
    version = found.get("codebase_version") if isinstance(found, dict) else None
    if version not in ("v2.0", "v2.1", "v3.0"):
        raise ArtifactError(
            f"{shown(str(root), 100)} is of version {shown(version, 40)}; this importer reads v2.0, v2.1 and v3.0"
        )
    return dict(found)


def _features(info: Mapping[str, Any], root: Path) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """(name of each column to read -> its shape, what is left out). A shape of one number is ()."""
    described = info.get("features")
    if not isinstance(described, dict):
        raise _damaged(root, "meta/info.json has no table of features")
    found: dict[str, tuple[int, ...]] = {EPISODE: (), FRAME: ()}
    left_out = list[str]()
    for name, each in described.items():
        used = name in (REWARD, DONE, TRUNCATED, MASK) or _is_part(name, OBSERVATION) or _is_part(name, ACTION)
        if not used:
            continue
        dtype, shape = (each.get("dtype"), each.get("shape")) if isinstance(each, dict) else (None, None)
        if dtype not in NUMBERS:
            left_out.append(f"{name} ({shown(dtype, 20)})")
            continue
        if not isinstance(shape, list) or not all(type(size) is int and 0 < size <= MOST_WIDTH for size in shape):
            raise _damaged(root, f"the feature {shown(name, 60)} has the shape {shown(shape, 60)}")
        if math.prod(shape) > MOST_WIDTH:
            raise _damaged(root, f"the feature {shown(name, 60)} has {math.prod(shape):,} numbers in a frame")
        found[name] = () if shape == [1] else tuple(shape)
    for prefix in (OBSERVATION, ACTION):
        if not any(_is_part(name, prefix) for name in found):
            hint = f"; left out: {', '.join(left_out)}" if left_out else ""
            raise ArtifactError(f"{shown(str(root), 100)} has no feature {prefix} with numbers{hint}")
    return found, left_out


def _is_part(name: object, prefix: str) -> bool:
    """Whether a feature belongs to the observation or the action: `action`, or `action.gripper`."""
    return isinstance(name, str) and (name == prefix or name.startswith(f"{prefix}."))


# --- the columns ------------------------------------------------------------------------------------------------------


def _columns(parquet: Any, root: Path, features: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The columns [frames, ..] of all data files, one episode after another.

    The paths in meta/info.json are not used: a file must not choose which other files are read.

    Raises:
        ArtifactError: a file is damaged, or lacks a column. ResourceError: they do not fit into memory.
    """
    paths = sorted(place for place in (root / "data").glob("*/*.parquet") if place.is_file())
    if not paths:
        raise _damaged(root, "there is no file data/*/*.parquet")
    parts = dict[str, list[Array]]()
    try:
        files = [parquet.ParquetFile(place) for place in paths]
        rows = sum(each.metadata.num_rows for each in files)
        needed = 2 * 8 * rows * sum(math.prod(shape) for shape in features.values())
        if needed > available_bytes():
            raise ResourceError(f"{root} has {rows:,} frames, which need about {needed:,} bytes of memory")
        for place, file in zip(paths, files, strict=True):
            if missing := sorted(features.keys() - {*file.schema_arrow.names}):
                raise _damaged(root, f"{place.name} has no column {', '.join(missing)}")
            table = file.read(columns=list(features), use_threads=False)
            for name, shape in features.items():
                parts.setdefault(name, []).append(_numbers(table.column(name), shape, f"{place.name}, {name}", root))
    except RlsdkError:
        raise
    except Exception as error:  # pyarrow raises many types of errors for damaged files
        raise _damaged(root, one_line(f"{type(error).__name__}: {message_of(error)}", 200)) from None
    columns = {name: np.concatenate(found) for name, found in parts.items()}
    order = np.lexsort((columns[FRAME], columns[EPISODE]))
    return {name: rows[order] for name, rows in columns.items()}


def _numbers(column: Any, shape: tuple[int, ...], where: str, root: Path) -> Array:
    """A column of numbers, or of nested lists of numbers, as an array [rows, *shape]."""
    rows, values, sizes = len(column), column.combine_chunks(), list[int]()
    while hasattr(values, "flatten") and type(values).__name__.endswith("ListArray"):
        each = values.value_lengths().unique().to_pylist()  # one number, unless frames differ
        if len(each) > 1:
            raise _damaged(root, f"{where}: frames have {' and '.join(map(str, each[:2]))} numbers, not {shape} each")
        sizes, values = [*sizes, *each], values.flatten()
    if len(sizes) == len(shape) and rows and tuple(sizes) != shape:
        raise _damaged(root, f"{where}: frames have the shape {tuple(sizes)}, not {shape}")
    if values.null_count or len(values) != rows * math.prod(shape):
        raise _damaged(
            root, f"{where}: {len(values) - values.null_count} numbers in {rows} frames, not {shape} in each"
        )
    found = values.to_numpy(zero_copy_only=False)
    if found.dtype.kind not in "biuf":
        raise _damaged(root, f"{where}: values of type {found.dtype}, not numbers")
    reshaped: Array = found.reshape(rows, *shape)
    return reshaped


def _episodes(columns: Columns, root: Path) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of the rows of each episode, after a check of the numbers of episodes and frames."""
    numbers, frames = columns[EPISODE], columns[FRAME]
    if not len(numbers):
        raise _damaged(root, "it has no frames")
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(numbers)], strict=True):
        if not np.array_equal(frames[start:end], np.arange(end - start)):
            raise _damaged(root, f"the frames of episode {numbers[start]} are not numbered 0 to {end - start - 1}")
        if DONE in columns and columns[DONE][start : end - 1].any():
            raise _damaged(root, f"episode {numbers[start]} continues after {DONE}")
        yield start, end


# --- episodes and spaces ----------------------------------------------------------------------------------------------


def _episode(spaces: tuple[Space, Space], rows: Columns, own: Mapping[str, Any], number: int) -> RecordedEpisode:
    """An episode of T frames. `own`: the columns of `export_lerobot`, with a row for each episode."""

    def with_last(name: str) -> Array:
        final = own.get(f"{OWN}/final/{name}")
        last = (
            rows[name][-1:]
            if final is None
            else np.asarray(final[number], rows[name].dtype).reshape(1, *rows[name].shape[1:])
        )
        return np.concatenate([rows[name], last])

    seen, done = (names_of(space, prefix) for space, prefix in zip(spaces, (OBSERVATION, ACTION), strict=True))
    seeds = own.get(f"{OWN}/seed")
    ended, cut = (bool(rows[name][-1]) if name in rows else False for name in (DONE, TRUNCATED))
    return RecordedEpisode(
        map_leaves(spaces[0], lambda path, leaf: with_last(seen[path]).reshape(-1, *shape_of(leaf)), path=OBSERVATION),
        map_leaves(spaces[1], lambda path, leaf: rows[done[path]].reshape(-1, *shape_of(leaf)), path=ACTION),
        rows[REWARD] if REWARD in rows else np.zeros(len(rows[FRAME]), np.float32),  # type: ignore[arg-type]  # arrays are accepted
        ended and not cut,
        with_last(MASK) if MASK in rows else None,  # type: ignore[arg-type]
        None if seeds is None else seeds[number],
    )


def names_of(space: Space, prefix: str) -> dict[str, str]:
    """Path of each leaf of a space -> the name of its feature, such as `observation.state` or `action.gripper`.

    Raises:
        SettingsError: two leaves would get the same name, or a name would have a slash, which LeRobot forbids.
    """
    found = dict[str, str]()
    for path, _ in leaf_spaces(space, prefix):
        keys = path.removeprefix(prefix).replace("']['", ".").replace("['", ".").replace("']", "").replace("][", ".")
        keys = keys.replace("[", ".").replace("]", "")
        if keys in ("", f".{prefix}"):  # a Dict may have a key of this name, beside others
            found[path] = STATE if not keys and prefix == OBSERVATION else prefix
        else:
            found[path] = prefix + keys
    if len({*found.values()}) < len(found) or any("/" in name for name in found.values()):
        raise SettingsError(f"the keys of the {prefix} space make no names of features: {', '.join(found.values())}")
    return found


def _own(parquet: Any, root: Path, info: Mapping[str, Any], count: int) -> dict[str, Any]:
    """What `export_lerobot` added: the spaces, and columns with an entry for each episode. Without it, `spaces` is None."""
    described = info.get(OWN)
    if not isinstance(described, dict):
        return {"spaces": None}
    try:
        spaces = from_json(described["observation_space"]), from_json(described["action_space"])
        found: dict[str, Any] = {"spaces": spaces}
        for place in sorted((root / "meta" / "episodes").glob("*/*.parquet")):
            file = parquet.ParquetFile(place)
            names = [name for name in file.schema_arrow.names if name.startswith(f"{OWN}/")]
            for name, values in file.read(columns=names, use_threads=False).to_pydict().items():
                found.setdefault(name, []).extend(values)
    except RlsdkError:
        raise
    except Exception as error:  # pyarrow raises many types of errors for damaged files
        raise _damaged(root, one_line(f"meta: {type(error).__name__}: {message_of(error)}", 200)) from None
    if any(len(values) != count for name, values in found.items() if name != "spaces"):
        raise _damaged(root, f"meta/episodes does not have {count} episodes")
    return found


def _spaces(
    env: object, own: tuple[Space, Space] | None, features: Mapping[str, tuple[int, ...]], columns: Columns, root: Path
) -> tuple[Space, Space]:
    """The spaces of the episodes: those of `env`, those in the data set, or those that the features describe."""
    if env is not None:
        made = connect(env)
        spaces = made.observation_space, made.action_space
        made.close()
    elif own is not None:
        spaces = own
    else:
        spaces = (
            _described(
                {
                    name: _observed(shape, columns[name])
                    for name, shape in features.items()
                    if _is_part(name, OBSERVATION)
                }
            ),
            _described({name: _acted(columns[name], name, root) for name in features if _is_part(name, ACTION)}),
        )
    for space, prefix in zip(spaces, (OBSERVATION, ACTION), strict=True):
        known = dict(leaf_spaces(space, prefix))
        for path, name in names_of(space, prefix).items():
            given = features.get(name)
            if given is None or math.prod(given) != math.prod(shape_of(known[path])):
                got = "does not have it" if given is None else f"has the shape {given}"
                raise ArtifactError(
                    f"{path} of the space has the shape {shape_of(known[path])}, and {name} of {root.name} {got}"
                )
    return spaces


def _described(leaves: Mapping[str, Space]) -> Space:
    """The space of features: one alone by itself, several as a Dict whose keys are the rest of their names."""
    if len(leaves) == 1 and next(iter(leaves)) in (STATE, ACTION):
        return next(iter(leaves.values()))
    return Dict({name.partition(".")[2] or name: leaf for name, leaf in leaves.items()})


def _observed(shape: tuple[int, ...], rows: Array) -> Space:
    if rows.dtype == np.uint8:
        return Box(np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8), shape, "uint8")
    wide = np.full(shape or (1,), np.inf, np.float32)
    return Box(-wide, wide, shape or (1,), "float32")


def _acted(rows: Array, name: str, root: Path) -> Space:
    """The space of recorded actions. Whole numbers from 0 are choices; others have the recorded bounds."""
    low, high = rows.min(0), rows.max(0)
    if rows.dtype.kind not in "iu":
        low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        high = np.where(low < high, high, low + 1)  # an action that never changed needs room, too
        shape = low.shape or (1,)
        return Box(low.reshape(shape), high.reshape(shape), shape, "float32")
    if low.min() < 0 or rows.ndim > 2 or int(high.max()) >= MOST_WIDTH:
        raise ArtifactError(
            f"{name} of {root.name} has whole numbers from {low.min()} to {high.max()}; give the environment: --env ID"
        )
    if rows.ndim == 1:
        return Discrete(int(high) + 1)
    return MultiDiscrete(tuple(int(each) + 1 for each in high), (0,) * len(high))
