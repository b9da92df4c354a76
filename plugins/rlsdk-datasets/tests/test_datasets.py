"""Data sets of recorded episodes: writing, reading, splitting, sampling, damaged files, and data sets as a setting."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import make_vec_env, to_space
from rlsdk.environments.vector.connected import seed_of
from rlsdk.errors import ArtifactError, ObservationError, RlsdkError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.interfaces import BuildContext
from rlsdk.runtime.process import Streams
from rlsdk.settings import structure
from rlsdk_datasets import (
    Dataset,
    Episodes,
    RecordedEpisode,
    RecordedSequences,
    RecordedTransitions,
    open_episodes,
    write_episodes,
)
from rlsdk_envs.toy import ChainEnv
from rlsdk_interchange import export_minari, import_minari, record_episodes, remember
from rlsdk_interchange.recorded_data import episode_of
from rlsdk_tqc import TQC
from rlsdk_trpo import TRPO

SEEN = to_space(spaces.Dict({"b": spaces.Box(-1e6, 1e6, (2,)), "a": spaces.Discrete(9, start=1)}))
DONE = to_space(spaces.Discrete(4))


def episode(number: int, length: int, *, masks: bool = False, terminated: bool = True) -> RecordedEpisode:
    """A recorded episode of the given length. The first number of `b` in observation t of episode n is 100 n + t."""
    values = 100.0 * number + torch.arange(length + 1.0)
    return RecordedEpisode(
        observations={"b": torch.stack([values, -values], 1), "a": torch.arange(length + 1) % 9 + 1},
        actions=torch.arange(length) % 4,
        rewards=values[:-1] / 10,
        terminated=terminated,
        action_masks=(torch.arange(4) - torch.arange(length + 1).unsqueeze(1)) % 3 != 1 if masks else None,
        seed=number,
    )


def context(observations: Any = SEEN, actions: Any = DONE) -> BuildContext:
    return BuildContext(observations, actions, 1, "cpu", Streams(0))


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    episodes = [episode(n, 3 + n, masks=True, terminated=n % 2 == 0) for n in range(5)]
    return write_episodes(tmp_path / "demo", episodes, SEEN, DONE, "Some-v0")


def test_what_is_written_is_read(demo: Path) -> None:
    assert demo.name == "demo.safetensors"
    found = open_episodes(demo, context())
    assert (len(found), found.steps, found.file.header.environment) == (5, 25, "Some-v0")
    for number, read in enumerate(found):
        wrote = episode(number, 3 + number, masks=True, terminated=number % 2 == 0)
        assert torch.equal(read.observations["b"], wrote.observations["b"])
        assert torch.equal(read.observations["a"], wrote.observations["a"])
        assert torch.equal(read.actions, wrote.actions)
        assert torch.equal(read.rewards, wrote.rewards)
        assert (read.terminated, read.seed) == (wrote.terminated, number)
        assert read.action_masks is not None


def test_transitions_and_sequences_are_what_happened(demo: Path) -> None:
    found = open_episodes(demo, context()).split(0.6, seed=1)[1]
    lengths = found.lengths.tolist()
    batch = found.transitions(torch.arange(found.steps), 0.5)
    row = 0
    for number, length in zip(found.numbers.tolist(), lengths, strict=True):
        for t in range(length):
            value, last = 100.0 * number + t, t == length - 1
            assert float(batch.observation.features["b"][row, 0]) == value
            assert float(batch.next_observation.features["b"][row, 0]) == value + 1
            assert float(batch.reward[row]) == pytest.approx(value / 10)
            assert float(batch.discount[row]) == (0.0 if last and number % 2 == 0 else 0.5)
            assert bool(batch.observation.is_first[row]) == (t == 0)
            assert int(batch.action[row]) == t % 4
            assert batch.observation.action_mask is not None
            row += 1
    sequences = found.sequences(torch.arange(found.steps), 4, 0.5, burn_in=1)
    column = 0
    for number, length in zip(found.numbers.tolist(), lengths, strict=True):
        for t in range(length):
            steps = min(4, length - t)
            assert sequences.steps.valid[:, column].tolist() == [True] * steps + [False] * (4 - steps)
            assert sequences.loss_mask[:, column].tolist() == [i in range(1, steps) for i in range(4)]
            values = 100.0 * number + t + torch.arange(float(steps))
            assert torch.equal(sequences.steps.observation.features["b"][:steps, column, 0], values)
            assert torch.equal(sequences.next_observation.features["b"][:steps, column, 0], values + 1)
            ends = [t + i == length - 1 for i in range(steps)]
            assert (sequences.steps.terminated | sequences.steps.truncated)[:steps, column].tolist() == ends
            column += 1


def test_a_split_is_by_episode_and_repeatable(demo: Path) -> None:
    first, rest = open_episodes(demo).split(0.4, seed=3)
    again, _ = open_episodes(demo).split(0.4, seed=3)
    assert (len(first), len(rest)) == (2, 3)
    assert sorted([*first.numbers.tolist(), *rest.numbers.tolist()]) == list(range(5))
    assert first.numbers.tolist() == again.numbers.tolist()
    with pytest.raises(SettingsError, match="leaves one part empty"):
        first.split(0.01)


def test_memories_of_a_data_set(demo: Path) -> None:
    dataset = Dataset.at(demo)
    memory = RecordedTransitions(dataset, context(), gamma=0.9, share=0.6)
    batch = memory.sample(200, torch.Generator().manual_seed(0))
    assert set(batch.index.tolist()) == set(range(memory.episodes.steps))
    assert memory.held_out is not None
    assert len(memory) + memory.held_out.steps == 25
    sequences = RecordedSequences(dataset, context(), length=3)
    assert sequences.sample(7, torch.Generator().manual_seed(0)).steps.reward.shape == (3, 7)
    with pytest.raises(UsageError, match="cannot be extended"):
        memory.extend(None)
    memory.load_state_dict(memory.state_dict())
    with pytest.raises(UsageError, match="another data set"):
        memory.load_state_dict({"digest": "0"})


def test_nothing_is_read_before_it_is_needed(demo: Path) -> None:
    found = open_episodes(demo, context())
    assert set(found.file._read) == {"length"}
    found.transitions(torch.tensor([3]), 0.9)
    assert "seed" not in found.file._read
    demo.write_bytes(b"")  # columns that were read stay in memory
    assert float(found.transitions(torch.tensor([0]), 0.9).reward) == 0.0


def test_large_columns_are_mapped(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = open_episodes(demo).transitions(torch.arange(25), 0.9)
    monkeypatch.setattr("rlsdk_datasets.episode_file.IN_MEMORY", 10)
    monkeypatch.setattr("rlsdk_datasets.episode_file.CHUNK", 24)
    mapped = open_episodes(demo).transitions(torch.arange(25), 0.9)
    assert torch.equal(plain.observation.features["b"], mapped.observation.features["b"])
    assert torch.equal(plain.reward, mapped.reward)


def rewritten(path: Path, change: Any) -> None:
    """Change the header of the file by `change(header, document)`; its length field is adapted."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    document = json.loads(header["__metadata__"]["rlsdk"])
    change(header, document)
    if "__metadata__" in header:
        header["__metadata__"]["rlsdk"] = json.dumps(document)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda header, document: header.pop("__metadata__"), "no recorded episodes"),
        (lambda header, document: document.update(kind="other"), "kind 'other'"),
        (lambda header, document: document.update(format=9), "format 9"),
        (lambda header, document: document.pop("sha256"), "not a whole data set"),
        (lambda header, document: document.update(environment=["x"]), "not a whole data set"),
        (lambda header, document: document.update(observation_space={"kind": "Box"}), "does not describe a space"),
        (lambda header, document: document["sha256"].update(reward="0"), "reward does not match"),
        (lambda header, document: document["sha256"].pop("reward"), "not those it lists"),
        (lambda header, document: header["length"].update(dtype="F64"), "dtype torch.float64"),
        (lambda header, document: header["reward"].update(shape=[5, 5]), r"shape \(5, 5\)"),
        (lambda header, document: header["action"].update(data_offsets=[0, 2**60]), "not a whole data set"),
        (
            lambda header, document: document.update(action_space={"kind": "Discrete", "n": 4, "start": 1}),
            "lie outside",
        ),
    ],
)
def test_damaged_headers_are_one_error(demo: Path, change: Any, words: str) -> None:
    rewritten(demo, change)
    with pytest.raises(ArtifactError, match=words) as caught:
        list(open_episodes(demo))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_data_sets(demo: Path, tmp_path: Path) -> None:
    whole = demo.read_bytes()
    for size in (0, 5, 8, 100, len(whole) - 1):
        demo.write_bytes(whole[:size])
        with pytest.raises(ArtifactError, match="data set"):
            open_episodes(demo)
    demo.write_bytes(struct.pack("<Q", 2**62) + whole[8:])
    with pytest.raises(ArtifactError, match="whole data set"):
        open_episodes(demo)
    with (tmp_path / "huge.safetensors").open("wb") as stream:  # a sparse file
        stream.write(struct.pack("<Q", 2**30))
        stream.truncate(2**31)
    with pytest.raises(ArtifactError, match=r"refused: its header has 1073741824 bytes"):
        open_episodes(tmp_path / "huge.safetensors")
    for place in (tmp_path / "missing", tmp_path):
        with pytest.raises(ArtifactError, match="there is no data set"):
            open_episodes(place)
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    demo.write_bytes(bytes(flipped))
    with pytest.raises(ArtifactError, match="does not match its digest"):
        list(open_episodes(demo))


def test_altered_bytes_never_break_out(demo: Path) -> None:
    whole, dice = demo.read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        data = bytearray(whole)
        for at in dice.integers(0, len(data), 3):
            data[at] = dice.integers(0, 256)
        demo.write_bytes(bytes(data))
        # no other error occurs; a changed name of the environment is not detected as damage
        with contextlib.suppress(RlsdkError):
            list(open_episodes(demo))


def test_the_setting(demo: Path, tmp_path: Path) -> None:
    dataset = Dataset.at(demo)
    assert dataset.to_setting() == {"name": "demo", "digest": dataset.digest}
    context_other = context(actions=to_space(spaces.Discrete(5)))
    with pytest.raises(UnsupportedSpaceError, match="'demo' was recorded with actions"):
        open_episodes(dataset, context_other)
    with pytest.raises(UsageError, match="whose path is in no file"):
        open_episodes(Dataset("demo", dataset.digest))
    other = write_episodes(tmp_path / "other", [episode(1, 3)], SEEN, DONE)
    with pytest.raises(ArtifactError, match="another data set than expected"):
        Dataset.at(other, dataset.digest)
    other.replace(demo)
    with pytest.raises(ArtifactError, match="has changed"):
        open_episodes(dataset)


def test_settings_take_paths_and_tables(demo: Path) -> None:
    import attrs

    @attrs.frozen
    class Settings:
        dataset: Dataset
        further: Dataset | None = None

    dataset = Dataset.at(demo)
    for value in (str(demo), demo, dataset, {"path": str(demo), "digest": dataset.digest}, dataset.to_setting()):
        assert structure({"dataset": value, "further": value}, Settings).further == dataset
    for value, words in (
        (3, "is not a data set"),
        ("nowhere", "there is no data set nowhere"),
        ({"path": 3}, "is not a data set"),
    ):
        with pytest.raises(SettingsError, match=f"dataset: .*{words}"):
            structure({"dataset": value}, Settings)


def test_an_agent_is_recorded(tmp_path: Path) -> None:
    env = make_vec_env(lambda: ChainEnv(4), 2)
    model = TQC("MlpPolicy", env, normalize=True, buffer_size=200, learning_starts=1, policy_kwargs={"net_arch": [8]})
    model.learn(50)
    before = model.streams.state_dict()
    path = record_episodes(model, make_vec_env(lambda: ChainEnv(4), 2), 5, tmp_path / "chain", seed=3)
    assert str(before) == str(model.streams.state_dict())
    found = open_episodes(path)
    assert len(found) == 5
    for recorded in found:
        # not normalized, and including the final observation
        assert recorded.observations[:, 1].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert recorded.rewards.tolist() == [0.0, 1.0, 2.0, 3.0]
        assert recorded.terminated == ChainEnv(4).terminates(int(recorded.observations[0, 0]))
    one = TQC("MlpPolicy", ChainEnv(4), buffer_size=200)
    assert remember(one, found) == 20
    with pytest.raises(SettingsError, match="n_episodes"):
        record_episodes(model, ChainEnv(4), 0, path)
    with pytest.raises(UnsupportedSpaceError):
        record_episodes(model, "CartPole-v1", 1, path)


def test_box_actions_are_recorded_as_the_environment_got_them(tmp_path: Path) -> None:
    model = TRPO("MlpPolicy", "Pendulum-v1", policy_kwargs={"log_std_init": 3.0}, seed=0)
    found = open_episodes(record_episodes(model, "Pendulum-v1", 1, tmp_path / "p", seed=1))
    assert float(found.episode(0).actions.abs().max()) == 2.0
    assert (found.file.header.environment, found.episode(0).seed) == ("Pendulum-v1", seed_of(1, 0))


def test_minari_in_and_out(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    export_minari(demo, "rlsdk/demo-v0", algorithm_name="numbers", author="a", author_email="a@b", code_permalink="c")
    back: Episodes = open_episodes(import_minari("rlsdk/demo-v0", tmp_path / "back"), context())
    for read, wrote in zip(back, open_episodes(demo), strict=True):
        assert torch.equal(read.observations["b"], wrote.observations["b"])
        assert torch.equal(read.observations["a"], wrote.observations["a"])
        assert torch.equal(read.rewards, wrote.rewards)
        assert (read.terminated, read.seed) == (wrote.terminated, wrote.seed)
        assert read.action_masks is not None
        assert wrote.action_masks is not None
        assert torch.equal(read.action_masks, wrote.action_masks)
        assert not bool(read.action_masks.all())
    with pytest.raises(ArtifactError, match="no data set 'rlsdk/none-v0'"):
        import_minari("rlsdk/none-v0", tmp_path / "none")


def test_minari_knows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    record_episodes("random", "CartPole-v1", 3, tmp_path / "demo", seed=0)
    export_minari(tmp_path / "demo", "rlsdk/cart-v0", author="a", author_email="a@b", code_permalink="c")
    assert minari.load_dataset("rlsdk/cart-v0").env_spec.id == "CartPole-v1"
    back = open_episodes(import_minari("rlsdk/cart-v0", tmp_path / "back"))
    assert (back.file.header.environment, back.episode(0).seed) == ("CartPole-v1", seed_of(0, 0))


@pytest.mark.parametrize("rows", [3, 5])
def test_masks_of_another_shape_are_an_error(rows: int) -> None:
    given = {
        "observations": {"b": np.zeros((4, 2), np.float32), "a": np.ones(4, np.int64)},
        "actions": np.zeros(3, np.int64),
        "rewards": np.zeros(3),
        "terminations": np.array([False, False, True]),
        "truncations": np.zeros(3, bool),
        "infos": {"action_mask": np.ones((rows, 4), bool)},
    }
    with pytest.raises(ObservationError, match=r"episode 0: action masks of shape .* expected \(4, 4\)"):
        episode_of((SEEN, DONE), given, "episode 0")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="at least one"):
        write_episodes(tmp_path / "x", [], SEEN, DONE)
    with pytest.raises(SettingsError, match="for all of its episodes or for none"):
        write_episodes(tmp_path / "x", [episode(0, 2), episode(1, 2, masks=True)], SEEN, DONE)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot write"):
        write_episodes(tmp_path / "file" / "x", [episode(0, 2)], SEEN, DONE)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_frames_are_stacked_within_episodes(demo: Path) -> None:
    from rlsdk.preprocessing.preprocessing import FrameStacker

    frames = FrameStacker(SEEN, 3)
    stacking = BuildContext(frames.space, DONE, 1, "cpu", Streams(0), frames=frames)
    # steps 0, 1 and 3 of the second episode
    batch = open_episodes(demo, stacking).transitions(torch.tensor([3, 4, 6]), 0.9)
    assert batch.observation.features["b"][:, ::2].tolist() == [[100, 100, 100], [100, 100, 101], [101, 102, 103]]
    assert batch.next_observation.features["b"][:, ::2].tolist() == [[100, 100, 101], [100, 101, 102], [102, 103, 104]]
    assert batch.observation.features["a"].shape == (3, 3)
    sequences = open_episodes(demo, stacking).sequences(torch.tensor([3, 4]), 2, 0.9)
    assert sequences.steps.observation.features["b"][:, 0, ::2].tolist() == [[100, 100, 100], [100, 100, 101]]


def test_damaged_data_sets_of_minari_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    record_episodes("random", "CartPole-v1", 3, tmp_path / "demo", seed=0)
    export_minari(tmp_path / "demo", "rlsdk/cart-v0", author="a", author_email="a@b", code_permalink="c")
    data = tmp_path / "minari" / "rlsdk" / "cart-v0" / "data" / "main_data.hdf5"
    whole = data.read_bytes()
    for content in (whole[:5000], b"", whole[:-100]):
        data.write_bytes(content)
        with pytest.raises(ArtifactError, match="Minari") as refused:
            import_minari("rlsdk/cart-v0", tmp_path / "back")
        assert "\n" not in str(refused.value)
        assert not (tmp_path / "back.safetensors").exists()


def test_minari_needs_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a disk becomes full, HDF5 can end the process. A part of a data set would be in the way of another try."""
    storages = pytest.importorskip("minari.dataset.minari_storage")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    record_episodes("random", "CartPole-v1", 3, tmp_path / "demo", seed=0)
    by = {"author": "a", "author_email": "a@b", "code_permalink": "c"}

    def fails(*_: object) -> None:
        raise OSError("line one\nline two")

    with monkeypatch.context() as patched:
        usage = shutil.disk_usage(tmp_path)
        patched.setattr(shutil, "disk_usage", lambda _: usage._replace(free=50_000))
        with pytest.raises(
            ArtifactError, match="its disk has 50,000 free; free some space, or set MINARI_DATASETS_PATH"
        ):
            export_minari(tmp_path / "demo", "rlsdk/cart-v0", **by)
    with monkeypatch.context() as patched:
        patched.setattr(storages.MinariStorage, "update_metadata", fails)
        with pytest.raises(ArtifactError, match="OSError: line one line two"):
            export_minari(tmp_path / "demo", "rlsdk/cart-v0", **by)
    export_minari(tmp_path / "demo", "rlsdk/cart-v0", **by)


def test_a_process_that_inspects_a_data_set_warns_of_nothing(tmp_path: Path) -> None:
    record_episodes("random", "CartPole-v1", 1, tmp_path / "demo", seed=0)
    command = [sys.executable, "-m", "rlsdk", "inspect", str(tmp_path / "demo.safetensors")]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "episodes:     1:" in shown.stdout
    assert shown.stderr == ""
