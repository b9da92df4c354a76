"""Files changed by accident or on purpose: each is refused with `ArtifactError`, or loads, in bounded time."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlsdk
from rlsdk import tree
from rlsdk.agent.agent_file import KIND
from rlsdk.errors import ArtifactError, RlsdkError
from rlsdk.storage.archive import read_archive
from tests.altered_files.alterations import flipped, spliced, truncated
from tests.effort import limited

FAST, SLOW = 2_000, 100_000


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test in an empty folder, and check that no files but .rlsdk files appear there."""
    monkeypatch.chdir(tmp_path)
    yield
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".rlsdk"] == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("files") / "agent.rlsdk"
    settings: dict[str, Any] = {
        "buffer_size": 50,
        "learning_starts": 5,
        "batch_size": 4,
        "policy_kwargs": {"net_arch": [4]},
    }
    model = rlsdk.make("qrdqn", env="CartPole-v1", seed=0, normalize=True, **settings)
    model.learn(30).save(path, include=["replay"])
    return path.read_bytes()


# --- changed bytes: the digests detect them --------------------------------------------------------------------------


def numbered(data: bytes, draw: random.Random) -> bytes:
    """The bytes with one 32-bit number, mostly in a zip header, replaced."""
    changed, at = bytearray(data), draw.randrange(len(data) - 8)
    if draw.random() < 0.7:  # mostly in the headers of the zip
        marks = [i for mark in (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06") for i in _places(data, mark)]
        at = min(draw.choice(marks) + draw.randrange(46), len(data) - 8)
    value = draw.choice((0, 1, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, draw.randrange(2**32)))
    changed[at : at + 4] = struct.pack("<I", value)
    return bytes(changed)


def _places(data: bytes, mark: bytes) -> list[int]:
    found, at = [], data.find(mark)
    while at >= 0:
        found.append(at)
        at = data.find(mark, at + 1)
    return found


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (flipped, truncated, spliced, numbered)


# --- altered members with matching digests: the content must be checked ----------------------------------------------

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 2**70, 1.5, 1e308, "", "x", "../x", "\x00", [], {}, [[]], {"object": "os.system"},
    {"kind": "custom"}, [2**40], "float16", "object", [1, 2, 3],
)  # fmt: skip


def altered(value: Any, draw: random.Random) -> Any:
    """A JSON value with one thing in it changed, removed or added."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(sorted(value))
        if draw.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if draw.random() < 0.05:
            return {**value, draw.choice(("x", "a/b", key + "/x", "__class__")): draw.choice(ODD)}
        return {**value, key: altered(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        return [*value[:at], altered(value[at], draw), *value[at + 1 :]]
    if isinstance(value, str) and value.startswith("[{"):  # JSON inside JSON: states of environments
        return json.dumps(altered(json.loads(value), draw))
    return draw.choice(ODD)


def with_header(block: bytes, draw: random.Random) -> bytes:
    """A block of tensors with an altered header."""
    (length,) = struct.unpack("<Q", block[:8])
    header = altered(json.loads(block[8 : 8 + length]), draw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", draw.choice((len(text),) * 5 + (2**62, 0))) + text + block[8 + length :]


def rewritten(data: bytes, draw: random.Random) -> bytes:
    """The file with one member altered and matching sizes and digests; at times a member is repeated, added or left out."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    manifest = json.loads(members.pop("manifest.json"))
    name = draw.choice(sorted(members))
    if draw.random() < 0.4:
        manifest = altered(manifest, draw)
    elif name.endswith(".json"):
        members[name] = json.dumps(altered(json.loads(members[name]), draw)).encode()
    elif draw.random() < 0.8:
        members[name] = with_header(members[name], draw)
    else:
        members[name] = flipped(members[name], draw)
    if draw.random() < 0.05:
        members.pop(name)
    if draw.random() < 0.05:
        members[draw.choice(("../../evil", "/etc/evil", "policy.safetensors/x", "more.json"))] = b"{}"
    if isinstance(manifest, dict) and isinstance(manifest.get("members"), dict):
        fits = {n: {"size": len(m), "sha256": hashlib.sha256(m).hexdigest()} for n, m in members.items()}
        manifest["members"] = fits
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", draw.choice((zipfile.ZIP_STORED,) * 9 + (zipfile.ZIP_DEFLATED,))) as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for member, content in members.items():
            archive.writestr(member, content)
    return target.getvalue()


# --- the tests -------------------------------------------------------------------------------------------------------------


def refuse_or_equal(data: bytes, wanted: dict[str, Any]) -> str:
    """Read a file whose bytes were changed: it is refused, or its content is what was written."""
    try:
        _, sections = read_archive(io.BytesIO(data), kind=KIND)
    except ArtifactError:
        return "refused"
    found = tree.flatten(sections)
    assert set(found) == set(wanted)
    assert all(np.array_equal(np.asarray(found[n]), np.asarray(wanted[n])) for n in wanted)
    return "equal"


def refuse_or_load(data: bytes) -> str:
    """Load a consistent but altered file; if it loads, let the agent act and train."""
    try:
        agent = rlsdk.load(io.BytesIO(data), env="CartPole-v1", force_reset=False)
        agent.predict(agent.observation_space.sample())
        plan = agent.parts.plan
        # altered settings may demand far more work
        if plan.gradient_steps <= 4 and plan.batch_size <= 1024 and plan.train_every <= 64:
            agent.learn(1, reset_num_timesteps=False)
        return "loaded"
    except RlsdkError:
        return "refused"


def timed(check: Callable[[], str], what: str) -> str:
    try:
        with limited(what=what):
            return check()
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def attack_bytes(whole: bytes, count: int) -> None:
    wanted, answers = tree.flatten(read_archive(io.BytesIO(whole), kind=KIND)[1]), set()
    for seed in range(count):
        draw = random.Random(seed)
        data = draw.choice(BYTES)(whole, draw)
        answers.add(timed(lambda data=data: refuse_or_equal(data, wanted), f"bytes, seed {seed}"))  # type: ignore[misc]
    assert "refused" in answers


def attack_members(whole: bytes, count: int) -> None:
    answers = set()
    for seed in range(count):
        data = rewritten(whole, random.Random(seed))
        answers.add(timed(lambda data=data: refuse_or_load(data), f"members, seed {seed}"))  # type: ignore[misc]
    assert answers == {"refused", "loaded"}


def test_changed_bytes_are_noticed(whole: bytes) -> None:
    attack_bytes(whole, FAST)


def test_altered_members_are_refused_or_harmless(whole: bytes) -> None:
    attack_members(whole, FAST // 10)


@pytest.mark.slow
def test_100_000_changed_files(whole: bytes) -> None:
    attack_bytes(whole, SLOW * 8 // 10)
    attack_members(whole, SLOW * 2 // 10)


def test_a_zip_bomb_is_refused_unopened(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.rlsdk"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("manifest.json", "w", force_zip64=True) as member,
    ):
        for _ in range(256):
            member.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    with pytest.raises(ArtifactError, match="compressed"):
        rlsdk.load(path)
