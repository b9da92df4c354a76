"""Data sets of LeRobot: exact round trips, folders as LeRobot and others write them, and damaged ones. They need pyarrow."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk import tree
from rlsdk.environments import to_space
from rlsdk.errors import ArtifactError, ObservationError, ResourceError, SettingsError
from rlsdk_datasets import RecordedEpisode, open_episodes, write_episodes
from rlsdk_interchange import record_episodes
from rlsdk_lerobot import export_lerobot, import_lerobot
from rlsdk_lerobot.importing import names_of

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
ARM = spaces.Dict(
    {
        "joints": spaces.Box(-3, 3, (3,), np.float32),
        "tool": spaces.Tuple([spaces.Discrete(4), spaces.Box(-np.inf, np.inf, (1,), np.float32)]),
        "flags": spaces.MultiBinary(2),
    }
)
MOVES = spaces.Dict({"arm": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(3, start=2)})


def sample(space: Any, rows: int) -> Any:
    """[rows, ..], nested like the space."""
    if isinstance(space, spaces.Dict):
        return {key: sample(child, rows) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(sample(child, rows) for child in space.spaces)
    return np.stack([space.sample() for _ in range(rows)])


def recorded(
    path: Path, observation: Any = ARM, action: Any = MOVES, masks: bool = False, lengths: tuple[int, ...] = (4, 1, 7)
) -> Path:
    """A data set of episodes of these lengths. Those of one step are terminated and have no seed."""
    for number, space in enumerate((observation, action)):
        space.seed(number)
    rng = np.random.default_rng(0)
    episodes = [
        RecordedEpisode(
            sample(observation, length + 1),
            sample(action, length),
            rng.normal(size=length).astype(np.float32),  # type: ignore[arg-type]
            length == 1,
            rng.random((length + 1, 5)) < 2 if masks else None,  # type: ignore[arg-type]
            None if length == 1 else 10 + length,
        )
        for length in lengths
    ]
    return write_episodes(path, episodes, observation, action, "Arm-v0")


@pytest.mark.parametrize(
    ("observation", "action", "masks"),
    [
        (ARM, MOVES, False),
        (spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-2, 2, (1,), np.float32), False),
        (spaces.Discrete(5), spaces.MultiDiscrete([3, 2]), True),
        (spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(5), True),
    ],
)
def test_an_exported_data_set_comes_back_exactly(observation: Any, action: Any, masks: bool, tmp_path: Path) -> None:
    first = recorded(tmp_path / "first", observation, action, masks)
    folder = export_lerobot(first, tmp_path / "set", task="lift it", fps=20)
    again = import_lerobot(folder, tmp_path / "again")
    assert again.read_bytes() == first.read_bytes()


def test_seeds_come_back_if_the_first_episode_has_none(tmp_path: Path) -> None:
    first = recorded(tmp_path / "first", lengths=(1, 4, 7))
    again = import_lerobot(export_lerobot(first, tmp_path / "set"), tmp_path / "again")
    assert [episode.seed for episode in open_episodes(again)] == [None, 14, 17]
    assert again.read_bytes() == first.read_bytes()


def test_a_recording_of_an_agent_comes_back_exactly(tmp_path: Path) -> None:
    first = record_episodes("random", "Pendulum-v1", 2, tmp_path / "first", seed=3)
    again = import_lerobot(export_lerobot(first, tmp_path / "set"), tmp_path / "again")
    assert again.read_bytes() == first.read_bytes()


def test_files_are_those_of_lerobot(tmp_path: Path) -> None:
    """The layout, features, episodes, tasks and statistics of version 3.0."""
    folder = export_lerobot(recorded(tmp_path / "first"), tmp_path / "set", task="lift it", fps=20)
    files = {str(place.relative_to(folder)) for place in folder.rglob("*") if place.is_file()}
    episodes, data = "meta/episodes/chunk-000/file-000.parquet", "data/chunk-000/file-000.parquet"
    assert files == {"meta/info.json", "meta/stats.json", "meta/tasks.parquet", episodes, data}
    info = json.loads((folder / "meta" / "info.json").read_text())
    assert (info["codebase_version"], info["fps"], info["total_episodes"], info["total_frames"]) == ("v3.0", 20, 3, 12)
    assert info["features"]["observation.joints"] == {"dtype": "float32", "shape": [3], "names": None}
    assert info["features"]["action.grip"] == {"dtype": "int64", "shape": [1], "names": None}
    table = parquet.read_table(folder / data)
    assert set(table.column_names) == set(info["features"])
    assert table["episode_index"].to_pylist() == [0] * 4 + [1] + [2] * 7
    assert table["frame_index"].to_pylist() == [*range(4), 0, *range(7)]
    assert table["index"].to_pylist() == [*range(12)]
    np.testing.assert_allclose(table["timestamp"].to_numpy()[:4], [0, 0.05, 0.1, 0.15], rtol=1e-6)
    assert table["next.done"].to_pylist() == [False] * 3 + [True, True] + [False] * 6 + [True]
    assert table["next.truncated"].to_pylist() == [False] * 3 + [True, False] + [False] * 6 + [True]
    assert table["observation.joints"].type.list_size == 3
    assert parquet.ParquetFile(folder / data).num_row_groups == 3
    rows = parquet.read_table(folder / episodes).to_pylist()
    assert [row["length"] for row in rows] == [4, 1, 7]
    assert [(row["dataset_from_index"], row["dataset_to_index"]) for row in rows] == [(0, 4), (4, 5), (5, 12)]
    assert rows[0]["tasks"] == ["lift it"]
    stats = json.loads((folder / "meta" / "stats.json").read_text())
    joints = np.array(table["observation.joints"].to_pylist())
    np.testing.assert_allclose(stats["observation.joints"]["std"], joints.std(0), rtol=1e-6)
    assert stats["next.reward"]["count"] == [12]
    tasks = parquet.read_table(folder / "meta" / "tasks.parquet")
    assert tasks.to_pylist() == [{"task_index": 0, "task": "lift it"}]
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]


def foreign(folder: Path, version: str = "v2.1", **changes: Any) -> Path:
    """A data set as another program wrote it: two episodes, float64 states, a video, and no rewards."""
    numbers = np.arange(20, dtype=np.float64).reshape(5, 4) / 10
    columns: dict[str, Any] = {
        "observation.state": [row[:2].tolist() for row in numbers],
        "action": [row[2:].astype(np.float32).tolist() for row in numbers],
        "episode_index": [0, 0, 0, 1, 1],
        "frame_index": [0, 1, 2, 0, 1],
        "timestamp": [0.0, 0.1, 0.2, 0.0, 0.1],
        "next.done": [False, False, True, False, False],
    }
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float64", "shape": [2], "names": {"motors": ["a", "b"]}},
        "observation.images.top": {"dtype": "video", "shape": [48, 64, 3]},
        "action": {"dtype": "float32", "shape": [2]},
        "timestamp": {"dtype": "float32", "shape": [1]},
        "next.done": {"dtype": "bool", "shape": [1]},
        "language_instruction": {"dtype": "string", "shape": [1]},
    }
    columns |= changes.pop("columns", {})
    features |= changes.pop("features", {})
    info = {"codebase_version": version, "fps": 10, "features": features, **changes}
    info["data_path"] = "/etc/{episode_chunk.__class__}/../passwd"  # such a path is never used
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    place = folder / "data" / "chunk-000"
    place.mkdir(parents=True)
    table = pyarrow.table({name: values for name, values in columns.items() if values is not None})
    if version == "v3.0":
        parquet.write_table(table, place / "file-000.parquet")
    else:
        for number in (1, 0):
            chosen = [i for i, own in enumerate(columns["episode_index"]) if own == number]
            parquet.write_table(table.take(chosen), place / f"episode_{number:06d}.parquet")
    return folder


@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_data_sets_of_others(version: str, tmp_path: Path) -> None:
    folder = foreign(tmp_path / "set", version)
    with pytest.warns(UserWarning, match="left out|all rewards are 0") as notes:
        found = open_episodes(import_lerobot(folder, tmp_path / "out"))
    texts = [str(note.message) for note in notes]
    assert "left out of set, because data sets have numbers only: observation.images.top ('video')" in texts
    assert "set has no next.reward, so all rewards are 0" in texts
    first, second = list(found)
    np.testing.assert_allclose(first.observations, [[0, 0.1], [0.4, 0.5], [0.8, 0.9], [0.8, 0.9]])
    np.testing.assert_allclose(first.actions, [[0.2, 0.3], [0.6, 0.7], [1.0, 1.1]])
    assert (first.terminated, second.terminated) == (True, False)
    assert first.rewards.tolist() == [0, 0, 0]
    assert found.action_space.low.tolist() == pytest.approx([0.2, 0.3])  # type: ignore[union-attr]
    assert np.isinf(found.observation_space.high).all()  # type: ignore[union-attr]


class Arm(gymnasium.Env[Any, Any]):
    """An environment with the spaces of `foreign`."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Box(-5, 5, (2,), np.float32)


def test_spaces_of_an_environment_and_whole_numbers(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = open_episodes(import_lerobot(foreign(tmp_path / "a"), tmp_path / "out", Arm()))
        assert found.action_space == to_space(Arm.action_space)
        with pytest.raises(
            ArtifactError,
            match=r"observation of the space has the shape \(3,\), and observation.state of a has the shape",
        ):
            import_lerobot(tmp_path / "a", tmp_path / "out", "Pendulum-v1")
        with pytest.raises(ArtifactError, match=r"observation\['x'\] .* and observation.x of a does not have it"):
            import_lerobot(tmp_path / "a", tmp_path / "out", other())
        choice = {"dtype": "int64", "shape": [1]}
        whole = foreign(tmp_path / "b", columns={"action": [0, 3, 1, 2, 0]}, features={"action": choice})
        assert open_episodes(import_lerobot(whole, tmp_path / "out")).action_space == to_space(spaces.Discrete(4))
        several = {"observation.speed": {"dtype": "float32", "shape": [1]}, "action.grip": choice}
        columns = {"observation.speed": [1.0] * 5, "action.grip": [1] * 5}
        nested = open_episodes(
            import_lerobot(foreign(tmp_path / "c", columns=columns, features=several), tmp_path / "out")
        )
        assert [*nested.observation_space.spaces] == ["state", "speed"]  # type: ignore[union-attr]
        assert [*nested.action_space.spaces] == ["action", "grip"]  # type: ignore[union-attr]


def other() -> Any:
    env = Arm()
    env.observation_space = spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32)})  # type: ignore[assignment]
    return env


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"codebase_version": "v1.6"}, "is of version 'v1.6'; this importer reads v2.0, v2.1 and v3.0"),
        ({"features": {"action": {"dtype": "float32", "shape": [-2]}}}, r"feature 'action' has the shape \[-2\]"),
        (
            {"features": {"action": {"dtype": "float32", "shape": [2**20, 2**20]}}},
            "has 1,099,511,627,776 numbers in a frame",
        ),
        (
            {"features": {"action": {"dtype": "float32", "shape": [3]}}},
            r"action: frames have the shape \(2,\), not \(3,\)",
        ),
        (
            {"features": {"action": {"dtype": "video", "shape": [3]}}},
            "has no feature action with numbers; left out: .*action",
        ),
        ({"features": {"action": 3}}, "has no feature action with numbers"),
        ({"columns": {"frame_index": [0, 1, 1, 0, 1]}}, "frames of episode 0 are not numbered 0 to 2"),
        ({"columns": {"next.done": [True, False, False, False, False]}}, "episode 0 continues after next.done"),
        ({"columns": {"action": [[0.0, 1.0]] * 4 + [[0.0]]}}, "action: frames have 2 and 1 numbers"),
        # the right number of numbers, in the wrong frames
        (
            {"columns": {"action": [[0.0, 1.0]] * 2 + [[0.0], [1.0] * 3, [0.0] * 2]}},
            "action: frames have 2 and 1 numbers",
        ),
        ({"columns": {"action": [[0.0, 1.0]] * 4 + [[0.0, None]]}}, "action: 9 numbers in 5 frames"),
        ({"columns": {"action": [["a", "b"]] * 5}}, "action: values of type object, not numbers"),
        ({"columns": {"action": None}}, "file-000.parquet has no column action"),
        ({"rlsdk": {"observation_space": {"kind": "Box"}}}, "does not describe a space"),
    ],
)
def test_damaged_data_sets_are_one_line(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = foreign(tmp_path / "set", changes.pop("codebase_version", "v3.0"), **changes)
    refused(folder, tmp_path, words)


def refused(folder: Path, place: Path, words: str, kind: Any = ArtifactError) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(kind, match=words) as caught:
            import_lerobot(folder, place / "out")
    assert "\n" not in str(caught.value)
    assert not (place / "out.safetensors").exists()


def test_files_that_are_not_what_they_say(tmp_path: Path) -> None:
    refused(tmp_path / "none", tmp_path, "has no file meta/info.json, so it is not a data set of LeRobot")
    folder = foreign(tmp_path / "set", "v3.0")
    data, info = folder / "data" / "chunk-000" / "file-000.parquet", folder / "meta" / "info.json"
    good, described = data.read_bytes(), info.read_text()
    for damaged in (b"", b"PAR1", good[:200], good[:-8] + b"\xff" * 8, good.replace(b"PAR1", b"PAR2")):
        data.write_bytes(damaged)
        refused(folder, tmp_path, "is damaged: ")
    data.unlink()
    refused(folder, tmp_path, r"there is no file data/\*/\*.parquet")
    data.write_bytes(good)
    for text in (
        "",
        "[1",
        "[]",
        '{"codebase_version": "v3.0"}',
        "[" * 100_000,
        '{"codebase_version": "v3.0", "features": [1]}',
    ):
        info.write_text(text)
        refused(folder, tmp_path, "is damaged: |is of version None")
    nested = json.loads(described)
    nested["features"]["action"]["shape"] = [2, 1]
    info.write_text(json.dumps(nested))
    with pytest.warns(UserWarning, match="left out"):
        assert len(open_episodes(import_lerobot(folder, tmp_path / "out"))) == 2


def test_numbers_that_are_not_finite_or_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = [[0.0, 1.0]] * 4 + [[np.nan, 1.0]]
    refused(
        foreign(tmp_path / "a", columns={"observation.state": states}),
        tmp_path,
        "not all numbers are finite",
        ObservationError,
    )
    monkeypatch.setattr("rlsdk_lerobot.importing.available_bytes", lambda: 100)
    refused(foreign(tmp_path / "b"), tmp_path, "has 5 frames, which need about", ResourceError)


def test_a_changed_export_is_refused(tmp_path: Path) -> None:
    folder = export_lerobot(recorded(tmp_path / "first"), tmp_path / "set")
    place = folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    table = parquet.read_table(place)
    parquet.write_table(table.slice(0, 2), place)
    refused(folder, tmp_path, "meta/episodes does not have 3 episodes")
    wrong = pyarrow.array([[1.0]] * 3)
    number = table.column_names.index("rlsdk/final/observation.joints")
    parquet.write_table(table.set_column(number, "rlsdk/final/observation.joints", wrong), place)
    refused(folder, tmp_path, "is damaged: meta/episodes: cannot reshape")
    place.write_bytes(b"PAR1")
    refused(folder, tmp_path, "is damaged: ")


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    first = recorded(tmp_path / "first")
    (tmp_path / "there").mkdir()
    with pytest.raises(SettingsError, match="there exists; choose another folder"):
        export_lerobot(first, tmp_path / "there")
    with pytest.raises(SettingsError, match="fps = 0 must be a whole number from 1 to 1000"):
        export_lerobot(first, tmp_path / "set", fps=0)
    with pytest.raises(ArtifactError, match="none"):
        export_lerobot(tmp_path / "none", tmp_path / "set")
    picture = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    with pytest.raises(
        SettingsError, match=r"observation has the shape \(4, 4, 3\); LeRobot stores pictures as videos"
    ):
        export_lerobot(recorded(tmp_path / "seen", picture), tmp_path / "set")
    same = spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)}), "a.b": spaces.Discrete(2)})
    with pytest.raises(SettingsError, match=r"make no names of features: observation.a.b, observation.a.b"):
        names_of(to_space(same), "observation")
    with pytest.raises(ArtifactError, match="cannot write"):
        export_lerobot(first, first / "set")
    assert not (tmp_path / "set").exists()
    assert {*names_of(to_space(ARM), "observation").values()} == {
        "observation.joints",
        "observation.tool.0",
        "observation.tool.1",
        "observation.flags",
    }


def test_commands(tmp_path: Path, cli: Any) -> None:
    first = recorded(tmp_path / "first", spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-2, 2, (1,), np.float32))
    code, out, _ = cli("export-lerobot", str(first), "--out", str(tmp_path / "set"), "--fps", "10")
    assert (code, out.strip()) == (0, f"{tmp_path / 'set'}: data set of LeRobot, v3.0")
    code, out, _ = cli("import-lerobot", str(tmp_path / "set"), "--out", str(tmp_path / "again"))
    assert code == 0
    assert "3 episodes, 12 steps" in out
    assert (tmp_path / "again.safetensors").read_bytes() == first.read_bytes()
    code, _, err = cli("import-lerobot", str(foreign(tmp_path / "b")), "--out", str(tmp_path / "c"))
    assert code == 0
    assert "note: left out of b, because data sets have numbers only: observation.images.top ('video')\n" in err
    for words, text in (
        (("import-lerobot", "set", "--out", str(first)), "exists; choose another --out, or add --overwrite"),
        (
            ("import-lerobot", str(tmp_path / "none"), "--out", str(tmp_path / "d")),
            "so it is not a data set of LeRobot",
        ),
        (("export-lerobot", str(tmp_path / "none"), "--out", str(tmp_path / "d")), "none"),
        (("export-lerobot", str(first), "--out", str(tmp_path / "d"), "--fps", "0"), "fps = 0 must be"),
    ):
        code, _, err = cli(*words)
        assert code == 1
        assert text in err
        assert len(err.strip().splitlines()) == 1


def test_leaves_are_tensors(tmp_path: Path) -> None:
    found = open_episodes(import_lerobot(export_lerobot(recorded(tmp_path / "a"), tmp_path / "set"), tmp_path / "b"))
    assert all(isinstance(leaf, torch.Tensor) for leaf in tree.leaves(found.episode(0).observations))
    assert [episode.seed for episode in found] == [14, None, 17]
