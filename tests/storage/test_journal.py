"""Replay buffers stored in parts: joined parts equal the buffer, and a checkpoint writes only what is new."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import rlsdk
from rlsdk import tree
from rlsdk.agent.agent_file import KIND
from rlsdk.callbacks import Callback, CheckpointCallback
from rlsdk.errors import ArtifactError
from rlsdk.storage.archive import inspect_archive, read_archive, write_archive
from rlsdk.storage.journal import KIND as KIND_OF_PART
from rlsdk.storage.journal import Journal, join_parts
from rlsdk_envs.toy import BitFlippingEnv

MEMORIES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "plain": ("qrdqn", "CartPole-v1", {}),
    "shared": ("qrdqn", "CartPole-v1", {"optimize_memory_usage": True}),
    "frames": ("qrdqn", "CartPole-v1", {"optimize_memory_usage": True, "frame_stack": 3, "normalize": True}),
    "prioritized": ("qrdqn", "CartPole-v1", {"replay_buffer_class": "prioritized", "n_steps": 3}),
    "hindsight": (
        "tqc",
        lambda: BitFlippingEnv(4, continuous=True),
        {"policy": "MultiInputPolicy", "replay_buffer_class": "hindsight"},
    ),
}


def make(name: str, size: int) -> Any:
    algorithm, env, settings = MEMORIES[name]
    return rlsdk.make(algorithm, env=env, seed=0, buffer_size=size, learning_starts=10_000, **settings)


class Compare(Callback):
    """A callback that writes the memory into a journal, joins the parts, and compares, every `every` steps."""

    def __init__(self, folder: Path, every: int) -> None:
        self.journal, self.every, self.compared, self.most = Journal(folder), every, 0, 0

    def on_report(self, run: Any, report: Any) -> bool | None:
        if run.num_timesteps % self.every == 0:
            state = run.agent.replay_buffer.state_dict()
            rest, names = self.journal.write(state)
            found = tree.flatten(join_parts(rest, self.journal.folder, names))
            wanted = tree.flatten(state)
            assert set(found) == set(wanted)
            for key, value in wanted.items():
                same = torch.equal(found[key], value) if isinstance(value, torch.Tensor) else found[key] == value
                assert same, f"{key} after {run.num_timesteps} steps"
            self.journal.clear(names)
            assert {p.name for p in self.journal.folder.iterdir()} == set(names)
            self.compared, self.most = self.compared + 1, max(self.most, len(names))
        return None


def test_parts_of_another_buffer_are_not_continued(tmp_path: Path) -> None:
    """Whichever of the two has more rows."""
    states = [make("plain", 200).learn(steps).replay_buffer.state_dict() for steps in (40, 12, 100)]
    journal = Journal(tmp_path)
    for state in (*states, *reversed(states)):
        rest, names = journal.write(state)
        found = tree.flatten(join_parts(rest, tmp_path, names))
        wanted = {key: value for key, value in tree.flatten(state).items() if isinstance(value, torch.Tensor)}
        assert all(torch.equal(found[key], value) for key, value in wanted.items())


def test_a_buffer_without_rows_has_no_parts(tmp_path: Path) -> None:
    for state in ({"rewards": torch.ones(3)}, make("plain", 200).replay_buffer.state_dict()):
        assert Journal(tmp_path / "parts").write(state) == (state, [])
    assert not (tmp_path / "parts").exists()
    agent = make("plain", 200)
    CheckpointCallback(10, tmp_path).save(agent)
    assert len(rlsdk.load(next(tmp_path.glob("*.rlsdk")), env="CartPole-v1").replay_buffer) == 0


@pytest.mark.parametrize("every", [1, 7, 40, 168])
@pytest.mark.parametrize("name", MEMORIES)
def test_parts_make_the_whole_through_several_turns_of_the_ring(name: str, every: int, tmp_path: Path) -> None:
    compare = Compare(tmp_path, every)
    make(name, 60).learn(220 if every > 1 else 140, [compare])
    assert compare.compared >= 1
    assert compare.most <= 60 // every + 3


def sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(folder.glob("*.rlsdk"))]


def test_a_checkpoint_costs_what_is_new(tmp_path: Path) -> None:
    model = make("plain", 5_000)
    model.learn(2_000, CheckpointCallback(500, tmp_path, keep=2))
    pieces, files = sizes(tmp_path / "replay"), sizes(tmp_path)
    assert len(pieces) == 4
    assert max(pieces) < 1.1 * min(pieces)
    assert len(files) == 2
    assert abs(files[0] - files[1]) < 2_000, "the files themselves do not grow"
    names = inspect_archive(tmp_path / "step_000002000.rlsdk", kind=KIND)["replay_parts"]
    assert sorted(names) == sorted(path.name for path in (tmp_path / "replay").iterdir())


def test_parts_nobody_names_are_deleted(tmp_path: Path) -> None:
    model = make("shared", 300)
    model.learn(2_000, CheckpointCallback(100, tmp_path, keep=2))
    assert len(sizes(tmp_path / "replay")) <= 300 // 100 + 3
    again = type(model).load(tmp_path / "step_000002000", env="CartPole-v1")
    again.learn(500, CheckpointCallback(100, tmp_path, keep=2), reset_num_timesteps=False)
    assert len(sizes(tmp_path / "replay")) <= 300 // 100 + 3
    assert len(again.replay_buffer) == 300


def test_missing_damaged_and_strange_parts_are_refused(tmp_path: Path) -> None:
    make("plain", 500).learn(400, CheckpointCallback(100, tmp_path / "whole"))
    path = tmp_path / "whole" / "step_000000400.rlsdk"
    names = inspect_archive(path, kind=KIND)["replay_parts"]

    def refused(change: Any, words: str) -> None:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", copy)
        change(copy / "replay")
        with pytest.raises(ArtifactError, match=words):
            rlsdk.load(copy / path.name, env="CartPole-v1")
        rlsdk.load(copy / path.name)  # an agent without an environment needs no replay buffer to predict

    def shortened(folder: Path) -> None:
        header, sections = read_archive(folder / names[1], kind=KIND_OF_PART)
        rows = tree.map_tensors(lambda leaf: leaf[:-1], sections["rows"])
        write_archive(folder / names[1], header, {"rows": rows})

    refused(shortened, "do not join")
    refused(lambda folder: (folder / names[1]).unlink(), "1 of 4 parts of the replay buffer are missing")
    refused(lambda folder: (folder / names[1]).write_bytes(b"x"), "is not a whole")
    refused(lambda folder: shutil.copy(folder / names[0], folder / names[1]), "do not join|end at row")
    refused(lambda folder: shutil.copy(folder / names[0], folder / names[-1]), "do not join|end at row")
    refused(lambda folder: shutil.rmtree(folder), "4 of 4 parts of the replay buffer are missing")
    with path.open("rb") as stream, pytest.raises(ArtifactError, match="load it by its path"):
        rlsdk.load(stream, env="CartPole-v1")
    outside = tmp_path / "moved.rlsdk"
    shutil.copy(path, outside)
    with pytest.raises(ArtifactError, match="parts of the replay buffer are missing"):
        rlsdk.load(outside, env="CartPole-v1")


def test_one_file_still_holds_everything_where_that_is_asked(tmp_path: Path) -> None:
    model = make("plain", 500).learn(100)
    model.save(tmp_path / "all", include=["replay"])
    assert len(rlsdk.load(tmp_path / "all", env="CartPole-v1").replay_buffer) == 100


def test_parts_with_other_columns_are_refused(tmp_path: Path) -> None:
    """Without the check, rows of a missing column were what happened to be in memory."""
    journal, memory = Journal(tmp_path), make("plain", 60)
    memory.learn(20)
    journal.write(memory.replay_buffer.state_dict())
    memory.learn(20, reset_num_timesteps=False)
    rest, names = journal.write(memory.replay_buffer.state_dict())
    document, sections = read_archive(tmp_path / names[1], kind=KIND_OF_PART)
    rows = tree.flatten(sections["rows"])
    key = next(name for name, rows_of in rows.items() if rows_of.dtype == torch.float32)
    for changed in ({**rows, key: rows[key].double()}, {n: r for n, r in rows.items() if n != key}):
        header = {name: document[name] for name in ("kind", "start", "end")}
        write_archive(tmp_path / names[1], header, {"rows": tree.unflatten(changed)})
        with pytest.raises(ArtifactError, match="has other columns than the first"):
            join_parts(rest, tmp_path, names)
