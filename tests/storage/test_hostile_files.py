"""Malicious agent files: they name paths, demand endless work, or contain entries of other kinds."""

from __future__ import annotations

import functools
import io
import json
import os
import random
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import rlsdk
from rlsdk.agent.agent_file import KIND
from rlsdk.errors import ArtifactError, ResourceError, RlsdkError, SettingsError
from rlsdk.settings.actor_critic import MAX_LAYERS
from rlsdk.storage import archive
from rlsdk.storage.archive import SafetensorsSerializer, read_archive, write_archive
from rlsdk.tree import flatten
from rlsdk_interchange.sb3 import import_sb3, read_sb3
from rlsdk_sb3.evaluations import EvaluationLog
from tests.altered_files.alterations import OF_TENSOR, altered, sealed
from tests.effort import limited
from tests.tables import in_one_test

SMALL: dict[str, Any] = {"buffer_size": 50, "learning_starts": 5, "batch_size": 4, "policy_kwargs": {"net_arch": [4]}}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test in an empty folder, and check that it stays empty."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert list((tmp_path / "here").iterdir()) == []


@pytest.fixture(scope="module")
def whole() -> bytes:
    target = io.BytesIO()
    model = rlsdk.make("qrdqn", env="CartPole-v1", seed=0, **SMALL)
    model.learn(30).save(target, include=["replay"])
    return target.getvalue()


def rewritten(data: bytes, **entries: Any) -> io.BytesIO:
    """The file with changed entries in its manifest."""
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        members = {info.filename: source.read(info) for info in source.infolist()}
    manifest = json.loads(members.pop("manifest.json"))
    return io.BytesIO(sealed({**manifest, **entries}, members))


def configured(data: bytes, **settings: Any) -> io.BytesIO:
    """The file with changed settings."""
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        config = json.loads(source.read("manifest.json"))["config"]
    return rewritten(data, config={**config, **settings})


def quickly_refused(source: Any, match: str, **arguments: Any) -> None:
    with limited(), pytest.raises(ArtifactError, match=match):
        rlsdk.load(source, **arguments)


@pytest.mark.parametrize("place", ["made", "../made", "/tmp/rlsdk-made"])
def test_a_file_does_not_say_where_a_memory_lies(whole: bytes, place: str, tmp_path: Path) -> None:
    for kind in (None, "prioritized", "uniform"):
        source = configured(whole, replay_buffer_kwargs={"directory": place}, replay_buffer_class=kind)
        agent = rlsdk.load(source)
        assert not Path(place).exists()
        assert agent.config.replay_buffer_kwargs in ({}, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent = rlsdk.load(
            configured(whole, replay_buffer_kwargs={"directory": place}),
            env="CartPole-v1",
            replay_buffer_kwargs={"directory": str(tmp_path / "mine")},
        )
    assert [path.name for path in (tmp_path / "mine").iterdir()], "the caller may choose it"


def test_a_memory_on_disk_is_saved_without_its_place(tmp_path: Path) -> None:
    for place in (str(tmp_path / "rows"), tmp_path / "rows"):
        model = rlsdk.make("qrdqn", env="CartPole-v1", seed=0, **SMALL, replay_buffer_kwargs={"directory": place})
        model.learn(20)
        target = io.BytesIO()
        model.save(target, include=["replay"])
        assert b"rows" not in zipfile.ZipFile(target).read("manifest.json")
        again = rlsdk.load(target, env="CartPole-v1")
        assert len(again.replay_buffer) == 20


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("features_extractor_kwargs", {"weights": "/etc/passwd"}),
        ("features_extractor_kwargs", {"folder": "mine"}),
        ("optimizer_kwargs", {"log": {"deep": ["..", 1]}}),
        ("features_extractor_kwargs", {"url": "x"}),
    ],
)
def test_arguments_that_may_be_places_are_asked_for(whole: bytes, table: str, value: Any) -> None:
    policy = {"net_arch": {"": [4]}, table: value}
    quickly_refused(configured(whole, policy_kwargs=policy), "may name files or folders")


def test_every_setting_that_is_a_place_is_known() -> None:
    """A setting whose name matches this pattern is a path; add it to `NOT_RESTORED`."""
    import attrs

    from rlsdk.agent.agent_file import NOT_RESTORED
    from rlsdk.registry import load
    from rlsdk.runtime.files import NAMES

    for plugin in rlsdk.algorithms():
        for field in attrs.fields(load(plugin.id).config_type):
            if NAMES.search(field.name.replace("profile", "")) or field.name.endswith("_log"):
                assert field.name in NOT_RESTORED, field.name


def test_small_files_do_not_make_long_work(whole: bytes) -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = {"a": deep}
    for settings, match in (
        ({"policy_kwargs": {"net_arch": {"": [1] * 200_000}}}, "layers"),
        ({"policy_kwargs": {"net_arch": {"": [2**19] * 3}}}, "far larger than the file"),
        ({"policy_kwargs": {"net_arch": {"": [2**20]}, "n_quantiles": 10**4}}, "far larger than the file"),
        ({"policy_kwargs": {"net_arch": {"": [4]}, "n_quantiles": 10**9}}, r"outside \[1, 10000\]"),
        ({"x" * 900: 1}, "unknown setting"),
        ({"x" * 2000: 1}, "characters"),
        ({"policy_kwargs": deep}, "nested"),
        ({"learning_rate": {"kind": "piecewise", "points": [[0.0, 1.0]] * 100_000}}, "points"),
        ({"frame_stack": 64, "policy_kwargs": {"net_arch": {"": [2**20] * 2}}}, "far larger|larger"),
    ):
        quickly_refused(configured(whole, **settings), match)
    quickly_refused(configured(whole, **{"x" * (3 * 2**20): 1}), "characters|large")
    quickly_refused(rewritten(whole, x="y" * (17 * 2**20)), "too large")
    quickly_refused(rewritten(whole, x=[[]] * (2**20 + 5)), "too many")
    quickly_refused(rewritten(whole, action_space={"kind": "MultiBinary", "shape": [2**25]}), "space")
    quickly_refused(rewritten(whole, observation_space={"kind": "Box", "shape": [1] * 40}), "space")


def test_orthogonal_weights_are_counted_too() -> None:
    target = io.BytesIO()
    rlsdk.make("trpo", env="CartPole-v1", policy_kwargs={"net_arch": [4]}).save(target)
    quickly_refused(configured(target.getvalue(), policy_kwargs={"net_arch": {"pi": [6000] * 2, "vf": [4]}}), "larger")
    assert torch.is_grad_enabled(), "what was refused leaves no mode behind"


@pytest.mark.parametrize("env", [None, "CartPole-v1"])
def test_a_policy_is_limited_like_an_agent(whole: bytes, env: str | None) -> None:
    kind = rlsdk.agent.agent_class(rlsdk.registry.load("qrdqn"))
    source = configured(whole, policy_kwargs={"net_arch": {"": [2**19] * 3}})
    with limited(), pytest.raises(ArtifactError, match="far larger than the file"):
        kind.load_policy(source, env, buffer_size=100)


@pytest.mark.parametrize(
    "parts",
    [
        ["../x.rlsdk"],
        ["000000000030-0123abcd.rlsdk"] * 300_000,
        [".."],
        [""],
        ["/etc/passwd"],
        ["a/000000000030-0123abcd.rlsdk"],
        [3],
        "x",
        {},
    ],
    ids=lambda parts: str(parts)[:20],
)
def test_parts_of_a_memory_are_names_of_parts(whole: bytes, parts: Any, tmp_path: Path) -> None:
    path = tmp_path / "agent.rlsdk"
    with zipfile.ZipFile(io.BytesIO(whole)) as source:
        members = {info.filename: source.read(info) for info in source.infolist()}
    manifest = {**json.loads(members.pop("manifest.json")), "replay_parts": parts}
    values = {**json.loads(members["replay.json"]), "size": 50}
    empty = {n: members[n] for n in members if not n.startswith("replay")}
    write_archive(tmp_path / "empty", {"kind": "x"}, {"replay": values})
    with zipfile.ZipFile(tmp_path / "empty") as source:
        empty |= {name: source.read(name) for name in ("replay.json", "replay.safetensors")}
    path.write_bytes(sealed(manifest, empty))
    quickly_refused(path, "parts", env="CartPole-v1")


def test_manifests_with_other_kinds_of_entries_are_refused(whole: bytes, cli: Any, tmp_path: Path) -> None:
    for entries in ({"plugin": "x"}, {"system": [1]}, {"system": {"a": 1}}, {"environment": 3}, {"config": []}):
        path = tmp_path / "odd.rlsdk"
        path.write_bytes(rewritten(whole, **entries).getvalue())
        quickly_refused(path, "manifest")
        code, _, error = cli("inspect", str(path))
        assert code
        assert "manifest has" in error or "has no text" in error
        with pytest.raises(RlsdkError):
            rlsdk.load(path, print_system_info=True)


# --- the file that is verified is the file that is used --------------------------------------------------------------


@pytest.fixture
def mapped_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archive, "MAP_FROM", 0)
    path = tmp_path / "big.rlsdk"
    write_archive(path, {"kind": KIND}, {"s": {"a": torch.arange(3_000_000.0)}})
    return path


def test_file_objects_are_read_whatever_their_name(mapped_file: Path) -> None:
    data = mapped_file.read_bytes()
    misnamed = io.BytesIO(data)
    misnamed.name = str(mapped_file.with_name("other"))
    mapped_file.with_name("other").write_bytes(bytes(len(data)))
    with (
        tempfile.TemporaryFile() as unnamed,
        open(mapped_file, "rb") as opened,
        os.fdopen(os.dup(opened.fileno()), "rb") as numbered,
    ):
        unnamed.write(data)
        for source in (misnamed, unnamed, opened, numbered):
            source.seek(0)
            assert torch.equal(read_archive(source, kind=KIND)[1]["s"]["a"], torch.arange(3_000_000.0))


def test_a_file_that_is_truncated_or_changed_later_harms_nothing(mapped_file: Path) -> None:
    values = read_archive(mapped_file, kind=KIND)[1]["s"]["a"]
    with open(mapped_file, "r+b") as stream:
        stream.seek(6_000_000)
        stream.write(b"\xff" * 1_000_000)
    os.truncate(mapped_file, 100)
    assert torch.equal(values, torch.arange(3_000_000.0))


# --- files of stable-baselines3 ------------------------------------------------------------------------------------------


def foreign(path: Path, data: Any, weights: Any, compression: int = zipfile.ZIP_STORED) -> Path:
    stream = io.BytesIO()
    torch.save(weights, stream)
    with zipfile.ZipFile(path, "w", compression) as target:
        target.writestr("data", data if isinstance(data, bytes) else json.dumps(data))
        target.writestr("policy.pth", stream.getvalue())
    return path


def test_foreign_files_that_expand_are_refused_before_they_do(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    huge = torch.zeros(1).expand(2**20, 2**12)
    for data, weights, compression in (
        (b"[" + b"0," * 2**25 + b"0]", {"a": torch.ones(2)}, zipfile.ZIP_DEFLATED),
        ({}, {"a": torch.zeros(2**24)}, zipfile.ZIP_DEFLATED),
        ({}, {"a": huge}, zipfile.ZIP_STORED),
        ({}, {"a": torch.tensor([float("nan")])}, zipfile.ZIP_STORED),
        ({}, {"a": torch.eye(3).to_sparse()}, zipfile.ZIP_STORED),
        ({}, {3: torch.ones(2)}, zipfile.ZIP_STORED),
    ):
        with limited(), pytest.raises(ArtifactError):
            read_sb3(foreign(path, data, weights, compression))
    assert read_sb3(foreign(path, {"gamma": 0.9}, {"a": torch.ones(2)})).settings == {"gamma": 0.9}


@pytest.fixture(scope="module")
def foreign_model(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[dict[str, Any], dict[str, torch.Tensor]]]:
    """Algorithm -> (settings, weights) of a model of sb3-contrib."""
    sb3_contrib = pytest.importorskip("sb3_contrib")
    found = {}
    for name, policy, env, options in (
        ("TRPO", "MlpPolicy", "CartPole-v1", {"n_steps": 16, "batch_size": 16}),
        ("TQC", "MlpPolicy", "Pendulum-v1", {"buffer_size": 50}),
        ("QRDQN", "MlpPolicy", "CartPole-v1", {"buffer_size": 50}),
        ("RecurrentPPO", "MlpLstmPolicy", "CartPole-v1", {"n_steps": 16, "batch_size": 16}),
        ("ARS", "MlpPolicy", "Pendulum-v1", {}),
    ):
        kwargs: dict[str, Any] = {"net_arch": [4], **({"lstm_hidden_size": 4} if "Lstm" in policy else {})}
        path = tmp_path_factory.mktemp("foreign") / name
        getattr(sb3_contrib, name)(policy, env, seed=0, policy_kwargs=kwargs, **options).save(path)
        with zipfile.ZipFile(f"{path}.zip") as source:
            weights = torch.load(io.BytesIO(source.read("policy.pth")), weights_only=True)
            found[name] = json.loads(source.read("data")), weights
    return found


IDS = {"TRPO": "trpo", "TQC": "tqc", "QRDQN": "qrdqn", "RecurrentPPO": "recurrent-ppo", "ARS": "ars"}


@pytest.mark.parametrize("name", IDS)
def test_altered_foreign_files_work_or_are_refused(foreign_model: Any, name: str, tmp_path: Path) -> None:
    data, weights = foreign_model[name]
    env = "Pendulum-v1" if name in ("TQC", "ARS") else "CartPole-v1"
    answers = set()
    for seed in range(16):
        draw = random.Random(f"{name} {seed}")
        settings, changed = data, dict(weights)
        if draw.random() < 0.5:
            settings = altered({n: v for n, v in data.items() if not isinstance(v, dict)}, draw)
        else:
            chosen = draw.choice(sorted(changed))
            changed[chosen] = draw.choice(OF_TENSOR)(changed[chosen], draw)
            if draw.random() < 0.2:
                changed[draw.choice(sorted(changed)).replace("0", "10")] = changed.pop(chosen)
        path = foreign(tmp_path / "model.zip", json.loads(json.dumps(settings)), changed)
        with limited(what=f"seed {seed}"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                agent = import_sb3(path, IDS[name], env)
                agent.predict(agent.observation_space.sample())
                answers.add("loaded")
            except RlsdkError:
                answers.add("refused")
    assert answers == {"loaded", "refused"}


def test_layers_are_limited_for_everybody() -> None:
    for settings in ({"net_arch": [1] * (MAX_LAYERS + 1)}, {"net_arch": [2**21]}):
        with pytest.raises(SettingsError):
            rlsdk.make("trpo", env="CartPole-v1", policy_kwargs=settings)
    with pytest.raises(SettingsError):
        rlsdk.make("tqc", env="Pendulum-v1", use_sde=True, policy_kwargs={"sde_net_arch": [1] * 300})


@in_one_test
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[]] * archive.MAX_BRACKETS, "too many tables and lists"),
        ([{}] * archive.MAX_BRACKETS, "too many tables and lists"),
        ([[], {}] * (archive.MAX_BRACKETS // 2), "too many tables and lists"),
        ({"x" * (archive.MAX_NAME + 1): 1}, "a name has more than"),
        ([[{"x" * (archive.MAX_NAME + 1): 1}]], "a name has more than"),
        (functools.reduce(lambda inner, _: [inner], range(archive.MAX_DEPTH), 1), "nested too deeply"),
        (functools.reduce(lambda inner, _: {"a": inner}, range(archive.MAX_DEPTH), 1), "nested too deeply"),
        ("a lone surrogate \ud800", "surrogates not allowed"),
        (float("nan"), "JSON holds NaN"),
    ],
)
def test_json_that_is_valid_but_hostile_is_refused(value: Any, message: str, whole: bytes) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_archive(rewritten(whole, more=value), kind=KIND)


# --- refused after some of them was read ---------------------------------------------------------------


def _numbers(agent: Any) -> dict[str, torch.Tensor]:
    flat = flatten(agent.replay_buffer.state_dict())
    return {name: torch.as_tensor(value).clone() for name, value in flat.items() if not isinstance(value, dict)}


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_a_refused_replay_file_leaves_the_buffer(kind: str, tmp_path: Path) -> None:
    model = rlsdk.make("qrdqn", env="CartPole-v1", seed=0, replay_buffer_class=kind, **SMALL)
    model.learn(30).save_replay_buffer(path := tmp_path / "rows.rlsdk")
    with zipfile.ZipFile(path) as source:
        members = {info.filename: source.read(info) for info in source.infolist()}
    manifest = json.loads(members.pop("manifest.json"))
    tensors = safetensors.torch.load(members["replay.safetensors"])
    (name,) = (name for name in tensors if name.endswith("leaves/action/000"))
    tensors[name][3] = 7
    path.write_bytes(sealed(manifest, {**members, "replay.safetensors": safetensors.torch.save(tensors)}))
    agent = rlsdk.make("qrdqn", env="CartPole-v1", seed=1, replay_buffer_class=kind, **SMALL)
    agent.learn(12)
    before = _numbers(agent)
    with pytest.raises(ArtifactError, match="actions lie outside"):
        agent.load_replay_buffer(path)
    after = _numbers(agent)
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    agent.learn(12, reset_num_timesteps=False)


def test_a_replay_file_is_refused_if_no_copy_of_the_present_buffer_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a file that is refused later would leave half a buffer."""
    agent = rlsdk.make("qrdqn", env="CartPole-v1", seed=0, **SMALL).learn(40)
    agent.save_replay_buffer(tmp_path / "rows")
    agent.learn(12)
    before = _numbers(agent)
    monkeypatch.setattr("rlsdk.runtime.memory.available_bytes", lambda: 1000)
    with pytest.raises(ResourceError, match="a copy of the present replay buffer"):
        agent.load_replay_buffer(tmp_path / "rows")
    assert all(torch.equal(value, before[name]) for name, value in _numbers(agent).items())


@pytest.mark.parametrize(
    "arrays",
    [
        {"results": np.array([["a"], ["b"]])},
        {"ep_lengths": np.zeros((2, 3), np.int64)},
        {"timesteps": np.array([1.5, 2.5])},
        {"results": np.array([[np.nan], [1.0]])},
        {"successes": np.zeros(2, np.bool_)},
    ],
)
def test_altered_evaluations_are_begun_again(arrays: dict[str, Any], tmp_path: Path) -> None:
    """They are moved aside with a warning, and never mixed with new ones."""
    whole: dict[str, Any] = {
        "timesteps": np.array([10, 20]),
        "results": np.ones((2, 1)),
        "ep_lengths": np.ones((2, 1), np.int64),
    }
    log = EvaluationLog(tmp_path)
    np.savez(log.path, **whole)
    log.start(20)
    assert (log.best, log.outdated(1)) == (1.0, [])
    np.savez(log.path, **{**whole, **arrays})
    with pytest.warns(UserWarning, match="is started again"):
        log.start(20)
    assert log.best == float("-inf")
    assert log.outdated(1) == [log.path]


def test_tensors_without_their_document_are_refused(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.rlsdk", {"kind": "rlsdk-tensors"}, {"tensors": {"a": torch.ones(2)}})
    for read in (SafetensorsSerializer().load, SafetensorsSerializer().inspect):
        with pytest.raises(ArtifactError, match="no document"):
            read(tmp_path / "x.rlsdk")
