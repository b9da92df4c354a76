"""Writes data sets of rlsdk as data sets of LeRobot, version 3.0 (extra `pyarrow`). `rlsdk_lerobot.importing` reads them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlsdk.errors import ArtifactError, RlsdkError, SettingsError, message_of, one_line, shown
from rlsdk.spaces import Space, dtype_of, leaf_spaces, map_leaves, shape_of, to_json
from rlsdk_datasets import Episodes, RecordedEpisode, open_episodes
from rlsdk_lerobot.importing import (
    ACTION,
    DONE,
    EPISODE,
    FRAME,
    MASK,
    OBSERVATION,
    OWN,
    REWARD,
    TRUNCATED,
    Array,
    names_of,
    parquet_module,
)

VERSION, CHUNK = "v3.0", "chunk-000/file-000.parquet"
DATA, EPISODES, TASKS = Path("data") / CHUNK, Path("meta") / "episodes" / CHUNK, Path("meta") / "tasks.parquet"
TIMES = {"timestamp": "float32", FRAME: "int64", EPISODE: "int64", "index": "int64", "task_index": "int64"}
"""The features that every data set of LeRobot has, and their dtypes."""
MOST_FPS = 1000


def export_lerobot(path: str | Path, folder: str | Path, *, task: str = "", fps: int = 30) -> Path:
    """Write a data set of rlsdk as a data set of LeRobot, version 3.0, and return its folder.

    Observations become `observation.state`, or one feature for each key of a Dict. Rewards and ends become `next.reward`,
    `next.done` and `next.truncated`.

    Args:
        path: the data set of rlsdk.
        folder: the folder to make. It must not exist.
        task: what the robot does, in words. By default it is the id of the environment.
        fps: frames per second, from which the times of frames follow.

    Raises:
        SettingsError: the extra is missing, the folder exists, `fps` is out of range, or observations are pictures.
        ArtifactError: the file is missing or damaged, or the folder cannot be written.
    """
    parquet = parquet_module()
    if type(fps) is not int or not 0 < fps <= MOST_FPS:
        raise SettingsError(f"fps = {shown(fps, 40)} must be a whole number from 1 to {MOST_FPS}")
    target = Path(folder)
    if target.exists():
        raise SettingsError(f"{target} exists; choose another folder")
    episodes = open_episodes(path)
    names = {
        prefix: _names(space, prefix)
        for prefix, space in ((OBSERVATION, episodes.observation_space), (ACTION, episodes.action_space))
    }
    environment = episodes.file.header.environment
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # complete or not at all
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as draft:
            _write(parquet, Path(draft) / "set", episodes, names, {"task": task or environment or "task", "fps": fps})
            shutil.move(Path(draft) / "set", target)
    except RlsdkError:
        raise
    except Exception as error:  # pyarrow raises many types of errors
        cause = one_line(message_of(error), 200)
        raise ArtifactError(f"cannot write {target}: {cause}; choose a writable place with free space") from None
    return target


def _names(space: Space, prefix: str) -> dict[str, str]:
    """Path of each leaf -> name of its feature. Raises SettingsError for pictures."""
    for path, leaf in leaf_spaces(space, prefix):
        if len(shape_of(leaf)) > 1:
            raise SettingsError(
                f"{path} has the shape {shape_of(leaf)}; LeRobot stores pictures as videos, which this export does not write:"
                " record the episodes with a wrapper that leaves them out or flattens them"
            )
    return names_of(space, prefix)


def _write(
    parquet: Any, root: Path, episodes: Episodes, names: Mapping[str, Mapping[str, str]], about: Mapping[str, Any]
) -> None:
    """Write all files of a data set."""
    import pyarrow

    for place in (DATA, EPISODES):
        (root / place).parent.mkdir(parents=True)
    features = _features(episodes, names)
    rows, start = list[dict[str, object]](), 0
    writer = None
    for number, episode in enumerate(episodes):
        frames = _frames(episodes, episode, names)
        length = len(episode.rewards)
        times = np.arange(length)
        frames |= {
            "timestamp": (times / about["fps"]).astype(np.float32),
            FRAME: times,
            EPISODE: np.full(length, number),
        }
        frames |= {"index": start + times, "task_index": np.zeros(length, np.int64)}
        table = pyarrow.table({name: _column(pyarrow, values[:length]) for name, values in frames.items()})
        writer = writer or parquet.ParquetWriter(root / DATA, table.schema)
        writer.write_table(table)  # one group of rows for each episode, as LeRobot does
        rows.append(_row(number, start, length, about["task"]) | _additions(frames, episode))
        start += length
    if writer is not None:
        writer.close()
    columns = dict.fromkeys(name for row in rows for name in row)  # the first episode may lack a seed that others have
    parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in columns}), root / EPISODES)
    parquet.write_table(_tasks(pyarrow, about["task"]), root / TASKS)
    info = _info(episodes, features, start, about["fps"])
    (root / "meta" / "info.json").write_text(json.dumps(info, indent=1, allow_nan=False), encoding="utf-8")
    stats = _statistics(parquet.read_table(root / DATA), features)
    (root / "meta" / "stats.json").write_text(json.dumps(stats, indent=1), encoding="utf-8")


def _info(episodes: Episodes, features: Mapping[str, object], frames: int, fps: int) -> dict[str, object]:
    """The content of meta/info.json."""
    return {
        "codebase_version": VERSION,
        "robot_type": None,
        "total_episodes": len(episodes),
        "total_frames": frames,
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": fps,
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": features,
        OWN: {
            "environment": episodes.file.header.environment,
            "observation_space": to_json(episodes.observation_space),
            "action_space": to_json(episodes.action_space),
        },
    }


def _features(episodes: Episodes, names: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, object]]:
    """The table of features for meta/info.json."""

    def feature(dtype: str, shape: Sequence[int] = (1,)) -> dict[str, object]:
        return {"dtype": dtype, "shape": list(shape) or [1], "names": None}

    found = dict[str, dict[str, object]]()
    for prefix, space in ((OBSERVATION, episodes.observation_space), (ACTION, episodes.action_space)):
        for path, leaf in leaf_spaces(space, prefix):
            found[names[prefix][path]] = feature(dtype_of(leaf), shape_of(leaf))
    if (masks := episodes.episode(0).action_masks) is not None:
        found[MASK] = feature("bool", masks.shape[1:])
    found |= {REWARD: feature("float32"), DONE: feature("bool"), TRUNCATED: feature("bool")}
    return found | {name: feature(dtype) for name, dtype in TIMES.items()}


def _frames(episodes: Episodes, episode: RecordedEpisode, names: Mapping[str, Mapping[str, str]]) -> dict[str, Array]:
    """Name of each feature -> its numbers: [T + 1, ..] of observations and masks, [T, ..] of the rest."""
    found = dict[str, Array]()
    for prefix, space, values in (
        (OBSERVATION, episodes.observation_space, episode.observations),
        (ACTION, episodes.action_space, episode.actions),
    ):

        def put(path: str, leaf: Space, rows: Any, own: Mapping[str, str] = names[prefix]) -> None:
            found[own[path]] = rows.numpy()

        map_leaves(space, put, values, path=prefix)
    if episode.action_masks is not None:
        found[MASK] = episode.action_masks.numpy()
    last = np.arange(len(episode.rewards)) == len(episode.rewards) - 1
    found |= {REWARD: episode.rewards.numpy(), DONE: last, TRUNCATED: last & (not episode.terminated)}
    return found


def _column(pyarrow: Any, rows: Array) -> Any:
    """A column of pyarrow: one number in each row, or a list of numbers."""
    if rows.ndim == 1 or rows.shape[1] == 1:
        return pyarrow.array(rows.reshape(-1))
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), rows.shape[1])


def _row(number: int, start: int, length: int, task: str) -> dict[str, object]:
    """What LeRobot stores of an episode in meta/episodes."""
    row: dict[str, object] = {EPISODE: number, "tasks": [task], "length": length}
    row |= {
        "data/chunk_index": 0,
        "data/file_index": 0,
        "dataset_from_index": start,
        "dataset_to_index": start + length,
    }
    return row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}


def _additions(frames: Mapping[str, Array], episode: RecordedEpisode) -> dict[str, object]:
    """What LeRobot has no place for: the last observation and mask of an episode, and its seed."""
    length = len(episode.rewards)
    final: dict[str, object] = {
        f"{OWN}/final/{name}": rows[-1].tolist() for name, rows in frames.items() if len(rows) == length + 1
    }
    return final if episode.seed is None else final | {f"{OWN}/seed": episode.seed}


def _tasks(pyarrow: Any, task: str) -> Any:
    """The table of tasks. LeRobot reads it with pandas, for which the text of a task is the name of its row."""
    text = {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    number = {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"}
    pandas = {"index_columns": ["task"], "column_indexes": [], "columns": [number | {"metadata": None}, text]}
    table = pyarrow.table({"task_index": [0], "task": [task]})
    return table.replace_schema_metadata({"pandas": json.dumps(pandas | {"pandas_version": "2.0.0"})})


def _statistics(table: Any, features: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Smallest and largest number, mean, standard deviation and count of each feature, with which LeRobot normalizes."""
    found = dict[str, dict[str, list[float]]]()
    for name, feature in features.items():
        values = table.column(name).combine_chunks()
        flat = values.flatten() if hasattr(values, "flatten") and feature["shape"] != [1] else values
        rows = np.asarray(flat.to_numpy(zero_copy_only=False), np.float64).reshape(len(table), -1)
        each = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
        found[name] = {key: value.tolist() for key, value in each.items()} | {"count": [len(rows)]}
    return found
