"""Random alterations of agent files, with digests that fit the altered content. They depend only on a seed."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import random
import struct
import tomllib
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

NUMBERS: tuple[Any, ...] = (
    -1, 0, 1, 2, 5, 255, 624, 625, 700, -5, 2**15, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, 2**63, 2**70, 10**8, -(10**8), 10**30,
    0.5, -0.5, 1.5, 1e308, -1e308, 1e-308, 4096, 65_536,
)  # fmt: skip
TEXTS = (
    "", "x", "../x", "/tmp/evil", "evil", "\x00", "~/x", "a/b", "os.system", "evilmod:Env-v0", "nan", "-inf", "0x1p-3", "0xzz",
    "float16", "object", "<f8", "<i8", "|O", "V8", "PCG64", "MT19937", "Philox", "auto", "cuda", "meta", "mlp", "é" * 50,
    "\ud800",
)  # fmt: skip
SHAPES: tuple[Any, ...] = (
    None, True, False, [], {}, [[]], [1], [2**40], [0], {"a": 1}, {"object": "os:system"}, {"kind": "custom"},
    {"constant": True},
    {"same": 0}, {"same": -1}, {"same": 10**6}, {"float": "inf"}, {"float": "nan"}, {"float": "0x1.8p+1"}, {"tuple": []},
    {"list": [1, 2, 3]}, {"set": [1]}, {"dict": []}, {"array": 0, "dtype": "<f8", "shape": [1]}, {"generator": {"dict": []}},
    {"torch": {"array": 0, "dtype": "|u1", "shape": [5056]}}, {"space": []}, {"simulation": {}}, {"deque": [], "maxlen": -1},
)  # fmt: skip
NAMES = (
    "x", "env", "spec", "action_space", "video_folder", "_max_episode_steps", "step", "__class__", "__dict__", "a/b",
    "directory",
    "metadata", "render_mode", "folder", "limit", "_np_random", "norm_obs", "../x", "tensorboard_log", "unwrapped",
)  # fmt: skip
DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool,
)  # fmt: skip


def odd(draw: random.Random) -> Any:
    """Return a random value, which may have an unexpected type or size."""
    return draw.choice(draw.choice((NUMBERS, NUMBERS, TEXTS, SHAPES)))


def altered(value: Any, draw: random.Random) -> Any:  # noqa: C901  # a line for each kind of alteration
    """Return a JSON value in which one entry is changed, removed, added, repeated, renamed or swapped."""
    if isinstance(value, dict) and value and draw.random() < 0.93:
        key, how = draw.choice(sorted(value)), draw.random()
        if how < 0.06:
            return {k: v for k, v in value.items() if k != key}
        if how < 0.10:
            return {**value, draw.choice((*NAMES, f"{key}/x", key.upper())): odd(draw)}
        if how < 0.13:
            other = draw.choice(sorted(value))
            return {**value, key: value[other], other: value[key]}
        if how < 0.15:
            return {(draw.choice(NAMES) if k == key else k): v for k, v in value.items()}
        return {**value, key: altered(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        at, how = draw.randrange(len(value)), draw.random()
        if how < 0.05:
            return value[:at] + value[at + 1 :]
        if how < 0.1:
            return [*value[:at], value[at], *value[at:]]
        if how < 0.12:
            return value * draw.choice((2, 50))
        return [*value[:at], altered(value[at], draw), *value[at + 1 :]]
    if isinstance(value, str) and value.startswith("[{"):  # JSON inside JSON: states of environments
        return json.dumps(altered(json.loads(value), draw))
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.6:
        return draw.choice((value + 1, value - 1, -value, value * 2, float(value), str(value), draw.choice(NUMBERS)))
    return odd(draw)


# --- tensors ---------------------------------------------------------------------------------------------------------------


def _cast(value: Tensor, draw: random.Random) -> Tensor:
    kinds = (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.int8,
        torch.bool,
    )
    return value.to(draw.choice(kinds))


def _reshaped(value: Tensor, draw: random.Random) -> Tensor:
    how = draw.randrange(7)
    if how == 0:
        return value.unsqueeze(draw.randrange(value.dim() + 1))
    if how == 1:
        return value.flatten()
    if how == 2:
        return value[:0] if value.dim() else value.reshape(1)[:0]
    if how == 3:
        return value[:-1] if value.dim() else value.reshape(1, 1)
    if how == 4:
        return torch.cat([value, value]) if value.dim() else value.expand(3)
    if how == 5:
        return value.flatten()[0] if value.numel() else torch.zeros(())
    return value.transpose(0, -1) if value.dim() > 1 else value.reshape(-1, 1)


def _filled(value: Tensor, draw: random.Random) -> Tensor:
    changed = value.clone().reshape(-1)
    if value.dtype == torch.bool:
        fill: Any = draw.choice((True, False))
    elif value.is_floating_point():
        fill = draw.choice((float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 0.0, -1.0, 1e-40))
    else:
        info = torch.iinfo(value.dtype)
        fill = max(info.min, min(info.max, draw.choice((info.min, info.max, -1, 0, 1, 7, 255, 624, 10**8, -(10**8)))))
    if changed.numel():
        changed[:] = fill if draw.random() < 0.4 else changed
        changed[draw.randrange(changed.numel())] = fill
    return changed.reshape(value.shape)


def _noisy(value: Tensor, draw: random.Random) -> Tensor:
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    if not value.numel():
        return value
    raw = torch.randint(256, (value.numel() * value.element_size(),), generator=generator, dtype=torch.uint8)
    if value.dtype == torch.bool:
        return (raw > 127).reshape(value.shape)
    return raw.view(value.dtype).reshape(value.shape)


OF_TENSOR: tuple[Callable[[Tensor, random.Random], Tensor], ...] = (_cast, _reshaped, _filled, _filled, _filled, _noisy)


def with_tensors(block: bytes, draw: random.Random) -> bytes:
    """Return a safetensors block in which one tensor is changed, removed, renamed, repeated or swapped."""
    tensors = dict(sorted(safetensors.torch.load(block).items()))
    if not tensors:
        return safetensors.torch.save({draw.choice(NAMES): torch.zeros(2)})
    name, how = draw.choice(sorted(tensors)), draw.random()
    other = draw.choice(sorted(tensors))
    if how < 0.07:
        del tensors[name]
    elif how < 0.12:
        tensors[draw.choice((f"{name}/x", f"{name}x", name.rpartition("/")[0] or "x", *NAMES))] = tensors.pop(name)
    elif how < 0.18:
        tensors[name], tensors[other] = tensors[other], tensors[name]
    elif how < 0.22:
        tensors[f"{name.rpartition('/')[0]}/{draw.choice(('999', 'x', '000'))}".lstrip("/")] = tensors[name].clone()
    else:
        tensors[name] = draw.choice(OF_TENSOR)(tensors[name], draw).contiguous()
    return safetensors.torch.save({n: v.clone() for n, v in tensors.items()})


def with_header(block: bytes, draw: random.Random) -> bytes:
    """Return a safetensors block with an altered header."""
    (length,) = struct.unpack("<Q", block[:8])
    header = json.loads(block[8 : 8 + length])
    described = header.get("__metadata__", {})
    if described and draw.random() < 0.8:  # a description in JSON, as text
        name = draw.choice(sorted(described))
        described[name] = json.dumps(altered(json.loads(described[name]), draw))
    else:
        header = altered(header, draw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", draw.choice((len(text),) * 5 + (2**62, 0))) + text + block[8 + length :]


# --- whole files -----------------------------------------------------------------------------------------------------------


def with_members(members: dict[str, bytes], draw: random.Random) -> None:
    """Change `members` in place: remove a member or a section, swap two members, or add one."""
    name, other = draw.choice(sorted(members)), draw.choice(sorted(members))
    how = draw.randrange(4)
    if how == 0:
        del members[name]
    elif how == 1:
        members[name], members[other] = members[other], members[name]
    elif how == 2:
        members[draw.choice(("../../evil", "/etc/evil", "policy.safetensors/x", "more.json", "replay.json"))] = b"{}"
    else:
        section = name.partition(".")[0]
        for kind in ("json", "safetensors"):
            members.pop(f"{section}.{kind}", None)


def alter(data: bytes, seed: str) -> bytes:  # noqa: C901  # a branch for each kind of member
    """Return the file with one to three alterations, which depend on `seed`."""
    draw = random.Random(seed)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    manifest = json.loads(members.pop("manifest.json"))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        where = draw.random()
        texts = sorted(name for name in members if name.endswith(".json") and len(members[name]) > 2)
        blocks = sorted(name for name in members if name.endswith(".safetensors"))
        if where < 0.2 and isinstance(manifest, dict):
            listed = manifest.pop("members", {})
            manifest = altered(manifest, draw)
            if isinstance(manifest, dict):
                manifest["members"] = listed
        elif where < 0.5 and texts:
            name = draw.choice(texts)
            try:
                members[name] = json.dumps(altered(json.loads(members[name]), draw)).encode()
            except ValueError:  # an earlier alteration left no JSON
                members[name] = b"[]"
        elif where < 0.93 and blocks:
            name = draw.choice(blocks)
            try:
                members[name] = with_tensors(members[name], draw)
            except (safetensors.SafetensorError, ValueError, RuntimeError):  # an earlier alteration left no tensors
                members[name] = b""
        elif where < 0.96 and blocks:
            name = draw.choice(blocks)
            try:
                members[name] = with_header(members[name], draw)
            except (struct.error, ValueError):
                members[name] = b""
        elif members:
            with_members(members, draw)
    return sealed(manifest, members)


def sealed(manifest: Any, members: dict[str, bytes]) -> bytes:
    """Return the archive, with correct sizes and digests in its manifest."""
    if isinstance(manifest, dict) and isinstance(manifest.get("members"), dict):
        fits = {n: {"size": len(m), "sha256": hashlib.sha256(m).hexdigest()} for n, m in members.items()}
        manifest = {**manifest, "members": fits}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for member, content in members.items():
            archive.writestr(member, content)
    return target.getvalue()


# --- files that are not archives --------------------------------------------------------------------------------------


def flipped(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 8, 64))):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def truncated(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def spliced(data: bytes, draw: random.Random) -> bytes:
    start, end, to = (draw.randrange(len(data)) for _ in range(3))
    piece = data[min(start, end) : max(start, end)][: draw.choice((1, 16, 4096))]
    return data[:to] + piece + data[to + draw.choice((0, len(piece))) :]


def with_cells(text: str, draw: random.Random) -> str:
    """Return a table in CSV in which a cell or a row is changed, removed, repeated or added."""
    rows = [line.split(",") for line in text.splitlines()] or [[""]]
    at, how = draw.randrange(len(rows)), draw.random()
    cell = str(odd(draw)).replace("\ud800", "?")
    if how < 0.6:
        rows[at][draw.randrange(len(rows[at]))] = cell
    elif how < 0.7:
        rows[at].append(cell)
    elif how < 0.8:
        rows[at].pop()
    elif how < 0.9:
        rows.insert(draw.randrange(len(rows) + 1), rows[at])
    else:
        del rows[at]
    return "\n".join(map(",".join, rows)) + "\n"


def as_toml(value: Any, inside: bool = False) -> str:
    """Return a value as TOML. None and odd keys give a text that is not valid, which is welcome here."""
    if isinstance(value, dict):
        pairs = [f"{json.dumps(key)} = {as_toml(item, inside=True)}" for key, item in value.items()]
        return f"{{{', '.join(pairs)}}}" if inside else "\n".join(pairs) + "\n"
    if isinstance(value, list):
        return f"[{', '.join(as_toml(item, inside=True) for item in value)}]"
    return json.dumps(value, default=str).replace("NaN", "nan").replace("Infinity", "inf")


YAML_PIECES = (
    "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "1: 2\n", "? [a, b]\n: 3\n", "&a x: *a\n", "a: &a {b: *a}\n",
    "<<: 3\n", "a: !!python/object:os.system {}\n", "a: !!binary aGk=\n", "a: !!set {b, c}\n", "a: 2001-01-01\n",
    "null: 1\n", "a: !!omap [b: 1]\n", "--- 1\n", "%YAML 1.1\n---\na: yes\n", "a: .nan\n", "? {a: b}\n: 3\n",
    "a: 0x_\n", "a: !!int x\n", "a: !!float ''\n", "a: !x y\n", "true: 1\n", "a: !!timestamp x\n", "1.5: {2: 3}\n",
    "<<: [{a: 1}, {b: 2}]\n", "- a\n", "a: !!str [b]\n", "a: !!map [b]\n",
)  # fmt: skip


def with_arrays(data: bytes, draw: random.Random) -> bytes:
    """Return an `.npz` file in which an array is changed, removed, renamed or added."""
    with np.load(io.BytesIO(data)) as stored:
        arrays = {name: torch.from_numpy(stored[name].copy()) for name in stored.files}
    name, how = draw.choice(sorted(arrays)), draw.random()
    if how < 0.1:
        del arrays[name]
    elif how < 0.2:
        arrays[draw.choice(NAMES)] = arrays.pop(name)
    else:
        changed = draw.choice(OF_TENSOR)(arrays[name], draw)
        arrays[name] = changed.float() if changed.dtype == torch.bfloat16 else changed
    target = io.BytesIO()
    odd_one = {name: np.array(odd(draw), dtype=draw.choice((None, object, "U9")))} if how > 0.9 else {}
    np.savez(target, allow_pickle=True, **{**{n: v.numpy() for n, v in arrays.items()}, **odd_one})
    return target.getvalue()


def spoiled(data: bytes, form: str, draw: random.Random) -> bytes:
    """Return the bytes of a file with one or two alterations. `form` is bytes, or one of `OF_FORM`."""
    for _ in range(draw.choice((1, 1, 2))):
        try:
            data = _spoiled(data, form, draw) if data else b"x"
        except Exception:
            data = flipped(data, draw)  # an earlier alteration left another form
    return data


def _spoiled(data: bytes, form: str, draw: random.Random) -> bytes:
    if form == "bytes" or draw.random() < 0.25:
        return draw.choice((flipped, truncated, spliced))(data, draw)
    return OF_FORM[form](data, draw)


def _lines(data: bytes, draw: random.Random) -> bytes:
    lines = data.splitlines()
    at = draw.randrange(len(lines))
    if draw.random() < 0.2:
        lines[at] = draw.choice((b"", lines[draw.randrange(len(lines))], b"[]", b"3", b'{"op_code": 99}', b"null"))
    else:
        lines[at] = json.dumps(altered(json.loads(lines[at]), draw), separators=(",", ":")).encode()
    return b"\n".join(lines) + b"\n"


def _yaml(data: bytes, draw: random.Random) -> bytes:
    from ruamel.yaml import YAML

    if draw.random() < 0.4:
        piece = draw.choice(YAML_PIECES).encode()
        return draw.choice((piece, data + piece, piece + data))
    return json.dumps(altered(YAML(typ="safe", pure=True).load(data.decode()), draw)).encode()


# --- files with digests or archives inside ----------------------------------------------------------------------------


def with_episodes(data: bytes, draw: random.Random) -> bytes:
    """Return a data set in which a tensor or the document is changed, and the digests fit the altered tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    document = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["rlsdk"])
    if draw.random() < 0.7:
        data = with_tensors(data, draw)
    else:
        document = altered(document, draw)
    tensors = safetensors.torch.load(data)
    if isinstance(document, dict) and isinstance(document.get("sha256"), dict):
        raw = {name: value.contiguous().reshape(-1).view(torch.uint8).numpy() for name, value in tensors.items()}
        document["sha256"] = {name: hashlib.sha256(content.data).hexdigest() for name, content in raw.items()}
    return safetensors.torch.save(tensors, metadata={"rlsdk": json.dumps(document)})


def with_foreign_members(data: bytes, draw: random.Random) -> bytes:
    """Return a model of stable-baselines3 with an altered setting or weight, in an archive that is intact."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    if draw.random() < 0.5:
        members["data"] = json.dumps(altered(json.loads(members["data"]), draw)).encode()
    else:
        weights = torch.load(io.BytesIO(members["policy.pth"]), weights_only=True)
        name = draw.choice(sorted(weights))
        weights[name] = draw.choice(OF_TENSOR)(weights[name], draw)
        if draw.random() < 0.3:
            weights[draw.choice((f"{name}.x", name.replace("0", "7"), *NAMES))] = weights.pop(name)
        torch.save(weights, stream := io.BytesIO())
        members["policy.pth"] = stream.getvalue()
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return target.getvalue()


def with_pickled_moments(data: bytes, draw: random.Random) -> bytes:
    """Return a pickle of `VecNormalize` with altered statistics or arguments. Only tests unpickle: this file is their own."""
    envs = pickle.loads(data)
    statistics, how = draw.choice((envs.obs_rms, envs.ret_rms)), draw.random()
    if how < 0.6:
        name = draw.choice(("mean", "var"))
        changed = draw.choice(OF_TENSOR)(torch.as_tensor(getattr(statistics, name)).reshape(-1), draw)
        setattr(statistics, name, changed.float().numpy() if changed.dtype == torch.bfloat16 else changed.numpy())
    elif how < 0.8:
        statistics.count = odd(draw)
    else:
        setattr(envs, draw.choice(("obs_rms", "ret_rms", "clip_obs", "gamma", "epsilon", "norm_obs")), odd(draw))
    return pickle.dumps(envs)


def with_datasets(data: bytes, draw: random.Random) -> bytes:
    """Return an HDF5 file in which one array or attribute is changed, removed or renamed."""
    import h5py

    stream = io.BytesIO(data)
    with h5py.File(stream, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        name = draw.choice(sorted(names))
        place, how = file[name], draw.random()
        if how < 0.2:
            del file[name]
        elif how < 0.3:
            file.move(name, draw.choice(("x", f"{name}x", "episode_999")))
        elif how < 0.5 or not isinstance(place, h5py.Dataset):
            place.attrs[draw.choice(sorted(place.attrs) or ["x"])] = draw.choice(
                (-1, 2**40, "x", float("nan"), b"\xff")
            )
        else:
            changed = draw.choice(OF_TENSOR)(torch.as_tensor(place[()]), draw)
            del file[name]
            file[name] = changed.float().numpy() if changed.dtype == torch.bfloat16 else changed.numpy()
    return stream.getvalue()


OF_FORM: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "json": lambda data, draw: json.dumps(altered(json.loads(data), draw)).encode(),
    "lines": _lines,
    "csv": lambda data, draw: with_cells(data.decode(), draw).encode(),
    "toml": lambda data, draw: as_toml(altered(tomllib.loads(data.decode()), draw)).encode("utf-8", "replace"),
    "yaml": _yaml,
    "npz": with_arrays,
    "header": with_header,
    "archive": lambda data, draw: alter(data, str(draw.random())),
    "episodes": with_episodes,
    "sb3": with_foreign_members,
    "moments": with_pickled_moments,
    "hdf5": with_datasets,
}
"""Form of a file -> what changes its content."""
