"""Agent files: their content, errors for damaged and malicious files, and interrupted writing."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.agent.agent_file import KIND
from rlsdk.errors import ArtifactError, PluginError, SettingsError
from rlsdk.storage.archive import inspect_archive, read_archive, write_archive
from rlsdk_envs.toy import IdentityEnvBox
from rlsdk_testing.subject import differing
from rlsdk_tqc import TQC

SEEN = np.array([0.3], np.float32)


def small(**settings: Any) -> TQC:
    defaults: dict[str, Any] = {"buffer_size": 300, "learning_starts": 5, "batch_size": 8, "seed": 0}
    kwargs = {"net_arch": [8], **settings.pop("policy_kwargs", {})}
    return TQC("MlpPolicy", IdentityEnvBox(episode_length=10), policy_kwargs=kwargs, **{**defaults, **settings})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "agent.rlsdk"
    small().learn(40).save(path, include=["replay_buffer"])
    return path


def edited(source: Path, target: Path, change: Any) -> Path:
    """Write a copy of the file with `change(name, data)` applied to every member; None removes the member."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            data = change(info.filename, old.read(info.filename))
            if data is not None:
                new.writestr(info.filename, data)
    return target


def manifest_edit(**changes: Any) -> Any:
    def change(name: str, data: bytes) -> bytes:
        return json.dumps({**json.loads(data), **changes}).encode() if name == "manifest.json" else data

    return change


def test_suffix_file_objects_and_class(saved: Path, tmp_path: Path) -> None:
    model = small()
    model.save(tmp_path / "v1.5")
    assert (tmp_path / "v1.5.rlsdk").is_file()
    assert isinstance(TQC.load(tmp_path / "v1.5"), TQC)
    assert isinstance(rlsdk.load(str(tmp_path / "v1.5.rlsdk")), TQC)
    memory = io.BytesIO()
    model.save(memory)
    memory.seek(0)
    np.testing.assert_array_equal(
        TQC.load(memory).predict(SEEN, deterministic=True)[0], model.predict(SEEN, deterministic=True)[0]
    )


def test_sections(tmp_path: Path) -> None:
    model = small().learn(20)
    model.save(tmp_path / "bare", exclude=["training"])
    model.save(tmp_path / "full", include=["replay"])
    assert set(inspect_archive(tmp_path / "bare.rlsdk", kind=KIND)["tensors"]) == {"policy"}
    assert set(inspect_archive(tmp_path / "full.rlsdk", kind=KIND)["tensors"]) == {"policy", "training", "replay"}
    loaded = TQC.load(tmp_path / "bare")
    np.testing.assert_array_equal(
        loaded.predict(SEEN, deterministic=True)[0], model.predict(SEEN, deterministic=True)[0]
    )
    for bad in ({"exclude": ["policy"]}, {"include": ["replays"]}):
        with pytest.raises(SettingsError):
            model.save(tmp_path / "x", **bad)
    assert not (tmp_path / "x.rlsdk").exists()


def test_policy_only_with_other_quantiles(tmp_path: Path) -> None:
    model = small(policy_kwargs={"n_quantiles": 7, "n_critics": 3}).learn(20)
    model.save(tmp_path / "q", exclude=["training"])
    loaded = TQC.load(tmp_path / "q", env=IdentityEnvBox(episode_length=10))
    assert loaded.config.policy_kwargs.n_quantiles == 7
    loaded.learn(20)


def test_training_goes_on_to_the_bit_after_loading(tmp_path: Path) -> None:
    """A training that was saved at the end of an episode continues as if it had not stopped; resets give one state."""

    class Fixed(IdentityEnvBox):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset(seed=7)

    def agent() -> TQC:
        env, kwargs = Fixed(episode_length=10), {"net_arch": [8]}
        return TQC("MlpPolicy", env, policy_kwargs=kwargs, buffer_size=300, learning_starts=5, batch_size=8, seed=0)

    one = agent().learn(60)
    two = agent().learn(30)
    two.save(tmp_path / "half", include=["replay"])
    three = TQC.load(tmp_path / "half", env=Fixed(episode_length=10)).learn(30, reset_num_timesteps=False)
    assert three.num_timesteps == 60
    expected, got = one.get_parameters(), three.get_parameters()
    assert differing(_flat(expected), _flat(got)) == []


def _flat(parameters: Any) -> dict[str, torch.Tensor]:
    from rlsdk.tree import flatten

    return {name: value for name, value in flatten(parameters).items() if isinstance(value, torch.Tensor)}


def test_replay_buffer_file(tmp_path: Path) -> None:
    model = small().learn(50)
    model.save_replay_buffer(tmp_path / "deep" / "buffer")
    other = small(seed=5)
    other.load_replay_buffer(tmp_path / "deep" / "buffer")
    assert len(other.replay_buffer) == 50
    index = torch.arange(50)
    assert torch.equal(other.replay_buffer.at(index).reward, model.replay_buffer.at(index).reward)
    losses = other.train(gradient_steps=3, batch_size=16)
    assert set(losses) >= {"train/critic_loss", "train/actor_loss"}
    with pytest.raises(ArtifactError, match="'rlsdk-replay' file"):
        TQC.load(tmp_path / "deep" / "buffer")


def test_overrides_and_functions(tmp_path: Path) -> None:
    model = small(learning_rate=lambda remaining: 1e-3 * remaining)
    model.save(tmp_path / "f")
    with pytest.raises(ArtifactError, match=r"learning_rate.*custom_objects"):
        TQC.load(tmp_path / "f")
    loaded = TQC.load(tmp_path / "f", custom_objects={"learning_rate": 1e-4}, gamma=0.5)
    assert loaded.config.learning_rate(1.0) == 1e-4
    assert loaded.config.gamma == 0.5
    with pytest.raises(SettingsError, match="did you mean 'gamma'"):
        TQC.load(tmp_path / "f", custom_objects={"learning_rate": 1e-4}, gama=0.5)


def test_load_is_no_instance_method(saved: Path) -> None:
    with pytest.raises(rlsdk.errors.UsageError, match="makes a new agent"):
        small().load(saved)


def test_system_info_is_printed(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TQC.load(saved, print_system_info=True)
    assert f"torch: saved with {version('torch')}" in capsys.readouterr().out


def test_every_truncation_is_refused(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    for length in [*range(0, len(data), max(1, len(data) // 150)), len(data) - 1]:
        (tmp_path / "cut.rlsdk").write_bytes(data[:length])
        with pytest.raises(ArtifactError):
            rlsdk.load(tmp_path / "cut.rlsdk")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (manifest_edit(format=99), "format 99"),
        (manifest_edit(kind="other"), "'other' file"),
        (manifest_edit(members={}), "not the ones its manifest lists"),
        (manifest_edit(config=None), "config = None"),
        (manifest_edit(config={"policy": "MlpPolicy", "gamma": 7}), "gamma"),
        (manifest_edit(observation_space={"kind": "Ball"}), "space"),
        (manifest_edit(observation_space={"kind": "Discrete", "n": 9, "start": 0}), "does not fit"),
        (manifest_edit(num_envs=-1), "num_envs"),
        (manifest_edit(seed="x"), "seed"),
        (lambda n, d: d if n != "policy.safetensors" else None, "not the ones"),
        (lambda n, d: d[:-1] + b"\x00" if n == "policy.safetensors" else d, "digest"),
        (lambda n, d: d + b"\x00" if n == "policy.safetensors" else d, "size"),
        (lambda n, d: b"[" * 100_000 if n == "manifest.json" else d, "not a whole"),
        (lambda n, d: b"NaN" if n == "manifest.json" else d, "not a whole"),
        (lambda n, d: b"3" if n == "manifest.json" else d, "not a whole"),
    ],
)
def test_edited_files_are_refused(saved: Path, tmp_path: Path, change: Any, words: str) -> None:
    bad = edited(saved, tmp_path / "bad.rlsdk", change)
    with pytest.raises((ArtifactError, SettingsError), match=words):
        rlsdk.load(bad)


def test_an_algorithm_that_is_not_installed_is_named(saved: Path, tmp_path: Path) -> None:
    bad = edited(
        saved, tmp_path / "x.rlsdk", manifest_edit(algorithm="acme-sac", plugin={"distribution": "rlsdk-acme-sac"})
    )
    with pytest.raises(PluginError, match="'acme-sac' agent made with rlsdk-acme-sac"):
        rlsdk.load(bad)


def test_foreign_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="there is no file"):
        rlsdk.load(tmp_path / "nothing")
    with pytest.raises(ArtifactError):
        rlsdk.load(tmp_path)
    (tmp_path / "text.rlsdk").write_text("hello")
    with zipfile.ZipFile(tmp_path / "foreign.rlsdk", "w") as archive:
        archive.writestr("policy.pth", b"")
    with zipfile.ZipFile(tmp_path / "bomb.rlsdk", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b" " * 50_000_000)
    for name, words in (("text", "not a whole"), ("foreign", "stable-baselines3"), ("bomb", "compressed")):
        with pytest.raises(ArtifactError, match=words):
            rlsdk.load(tmp_path / name)


def test_a_giant_tensor_header_is_refused(saved: Path, tmp_path: Path) -> None:
    import hashlib

    header = json.dumps({"mean.bias": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
    blob = struct.pack("<Q", len(header)) + header
    members = json.loads(zipfile.ZipFile(saved).read("manifest.json"))["members"]
    members["policy.safetensors"] = {"size": len(blob), "sha256": hashlib.sha256(blob).hexdigest()}

    def change(name: str, data: bytes) -> bytes:
        return blob if name == "policy.safetensors" else manifest_edit(members=members)(name, data)

    with pytest.raises(ArtifactError, match="not a whole"):
        rlsdk.load(edited(saved, tmp_path / "giant.rlsdk", change))


class Exploit:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_a_file_made_to_run_code_runs_none(saved: Path, tmp_path: Path) -> None:
    evidence = tmp_path / "owned"
    poison = pickle.dumps(Exploit(str(evidence)))
    torch.save({"x": torch.zeros(1), "y": Exploit(str(evidence))}, tmp_path / "torch.rlsdk")
    (tmp_path / "pickle.rlsdk").write_bytes(poison)
    for member in ("policy.safetensors", "policy.json", "training.json", "replay.safetensors", "manifest.json"):
        edited(saved, tmp_path / f"{member}.rlsdk", lambda n, d, m=member: poison if n == m else d)
    tricks = {
        "learning_rate": "__import__('os')",
        "activation_fn": "os:system",
    }
    for name, text in tricks.items():
        config = json.loads(zipfile.ZipFile(saved).read("manifest.json"))["config"]
        edited(saved, tmp_path / f"t-{name}.rlsdk", manifest_edit(config={**config, name: text}))
    refused = 0
    for path in sorted(tmp_path.glob("*.rlsdk")):
        with pytest.raises((ArtifactError, SettingsError, rlsdk.errors.EnvironmentFault)):
            rlsdk.load(path, env=IdentityEnvBox(episode_length=10))
        refused += 1
    assert refused == 9
    assert not evidence.exists()


@pytest.mark.full
def test_no_unpickling_is_reachable_while_loading(saved: Path) -> None:
    """In a new process in which pickle, `torch.load`, marshal, eval and exec raise errors, an agent file still loads."""
    code = f"""
import rlsdk, torch, pickle, builtins, gymnasium, marshal
import rlsdk_tqc.agent, rlsdk_tqc.build, rlsdk_envs.toy as toy
first = rlsdk.load({str(saved)!r}, env=toy.IdentityEnvBox(episode_length=10))
first.learn(5)  # generates code of classes and settings, and imports kernels, whose bytecode Python reads with marshal
def refuse(*a, **k): raise SystemError("unpickled")
pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = torch.load = refuse
real_eval, real_exec = builtins.eval, builtins.exec
builtins.eval = builtins.exec = marshal.loads = refuse
agent = rlsdk.load({str(saved)!r}, env=toy.IdentityEnvBox(episode_length=10))
agent.predict(agent.observation_space.sample())
builtins.eval, builtins.exec = real_eval, real_exec
agent.learn(5)
print("loaded", len(agent.replay_buffer))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "loaded 45", done.stderr


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = small(), tmp_path / "agent.rlsdk"
    model.save(path)
    before = path.read_bytes()
    model.learn(20)
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def fail(*args: Any) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(os, name, fail)
            with pytest.raises(ArtifactError, match=r"cannot write .*No space left on device"):
                model.save(path)
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == ["agent.rlsdk"]


def test_a_full_disk_and_unwritable_places(tmp_path: Path) -> None:
    model = small()
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file" / "agent", Path("/proc/agent"), Path("/dev/full/agent")):
        with pytest.raises(ArtifactError, match="cannot write"):
            model.save(target)
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(ArtifactError, match="No space"):
        model.save(full)


@pytest.mark.full
def test_a_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    code = f"""
import os, sys
from rlsdk_tqc import TQC
from rlsdk_envs.toy import IdentityEnvBox
model = TQC("MlpPolicy", IdentityEnvBox(), buffer_size=50)
print("ready", flush=True)
while True:
    model.save({str(tmp_path / "agent")!r})
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    for _ in range(200):
        if (tmp_path / "agent.rlsdk").exists():
            break
        import time

        time.sleep(0.02)
    import time

    time.sleep(0.3)
    process.kill()
    process.wait()
    assert isinstance(rlsdk.load(tmp_path / "agent"), TQC)


def test_empty_tables_survive(tmp_path: Path) -> None:
    state = {"a": {}, "b": {"c": torch.ones(2), "d": {"e": {}}}, "f": 3}
    write_archive(tmp_path / "x", {"kind": "test"}, {"s": state})
    _, sections = read_archive(tmp_path / "x", kind="test")
    assert sections["s"]["a"] == {}
    assert sections["s"]["b"]["d"] == {"e": {}}
    assert torch.equal(sections["s"]["b"]["c"], torch.ones(2))


def test_inspect_reads_no_tensors(saved: Path) -> None:
    document = inspect_archive(saved, kind=KIND)
    assert document["tensors"]["policy"]["mean.weight"] == ["F32", [1, 8]]
    assert document["algorithm"] == "tqc"
    _, sections = read_archive(saved, ("policy",), kind=KIND)
    assert set(sections) == {"policy"}
