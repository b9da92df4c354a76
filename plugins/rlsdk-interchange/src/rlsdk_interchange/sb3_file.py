"""Reads the settings and the weights in a file of stable-baselines3. No code in the file is run."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from rlsdk.errors import ArtifactError
from rlsdk_interchange.sb3_pickles import read_setting

MAX_SETTINGS, SMALL, MAX_GROWTH = 16 * 2**20, 2**20, 4
"""Limits of unpacked contents: bytes of the settings; weights may have `MAX_GROWTH` times the size of the file plus `SMALL`
bytes."""
_STATED = ("use_expln", "full_std", "clip_mean", "squash_output", "normalize_images")
"""Settings of networks that affect predictions and do not follow from the weights."""
ACTIVATION = re.compile(r"<class 'torch\.nn\.modules\.activation\.(?P<name>\w+)'>")
_EXTRACTOR = re.compile(
    r"<class 'stable_baselines3\.common\.torch_layers\.(FlattenExtractor|NatureCNN|CombinedExtractor)'>"
)
_ENTRY = re.compile(
    r"""(?:'(?P<key>[^'\\]{1,200})'|"(?P<quoted>[^"\\]{1,200})")(?:: |, )\w{1,30}\((?:[^()]*\((?P<shape>[\d, ]{0,200})\))?"""
)
"""Matches an entry of a Dict space as text: 'camera': Box(0, 255, (3, 36, 36), uint8)."""
_BUFFER, _BUFFER_ARGUMENTS = "replay_buffer_class", "replay_buffer_kwargs"
_GOALS = "n_sampled_goal", "goal_selection_strategy"
"""The arguments of replay buffers that are imported. Others have no counterpart, or could name a folder to write to."""
Shape = tuple[int, ...] | None
ADVICE = "give the .zip that model.save(path) of that library wrote"


@attrs.frozen
class Foreign:
    """The contents of a file: settings, network settings that do not follow from the weights, and weights by name.

    `pickled` names the settings that are stored as pickles of unknown objects. `observations` has the shapes of the entries
    of a Dict in order; for other observations, its only key is "".
    """

    settings: dict[str, object]
    networks: dict[str, object]
    weights: dict[str, Tensor]
    pickled: tuple[str, ...]
    observations: Mapping[str, Shape] = attrs.field(factory=dict)


def read_sb3(path: str | Path) -> Foreign:
    """Read the settings and weights in a file.

    Raises:
        ArtifactError: it is not a file of stable-baselines3, or its contents are much larger than the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(_member(archive, "data", MAX_SETTINGS))
            most = MAX_GROWTH * Path(path).stat().st_size + SMALL
            stored = set(archive.namelist()) & {"policy.pth", "pytorch_variables.pth"} | {"policy.pth"}
            loaded = [_loaded(_member(archive, name, most)) for name in sorted(stored, reverse=True)]
    except FileNotFoundError:
        raise ArtifactError(f"there is no file {path}; {ADVICE}") from None
    except Exception as error:  # a damaged file can raise any error; torch's restricted reader raises its own
        raise ArtifactError(
            f"{path} is not a file of stable-baselines3: {type(error).__name__}: {error}; {ADVICE}"
        ) from None
    if not isinstance(data, dict) or not all(isinstance(each, Mapping) for each in loaded):
        raise ArtifactError(f"{path} is not a file of stable-baselines3: it has no settings or no weights; {ADVICE}")
    settings, pickled = _settings(data)
    weights = {name: value for each in loaded for name, value in each.items() if isinstance(value, Tensor)}
    networks, seen = _networks(data.get("policy_kwargs")), _observations(data.get("observation_space"))
    return Foreign(settings, networks, weights, pickled, seen)


def _settings(data: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the settings that can be read, and the names of those that are pickles of unknown objects."""
    settings, pickled = dict[str, object](), list[str]()
    for name, value in data.items():
        if isinstance(value, dict) and ":serialized:" in value:
            try:
                settings[name] = read_setting(value)
            except ValueError:
                pickled.append(name)
        elif not isinstance(value, dict) or name == _BUFFER_ARGUMENTS:
            settings[name] = value
    arguments = settings.pop(_BUFFER_ARGUMENTS, None)
    if isinstance(arguments, dict) and settings.get(_BUFFER) == "hindsight":
        settings[_BUFFER_ARGUMENTS] = {name: arguments[name] for name in _GOALS if name in arguments} or None
    plain = {name: value for name, value in settings.items() if value is not None and not name.startswith("_")}
    return plain, tuple(pickled)


def _loaded(content: bytes) -> Any:
    """Return a stored object, read by torch's restricted reader.

    Raises:
        ArtifactError: weights are compressed, or a tensor is not a plain one.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as inner:
        if sum(info.file_size for info in inner.infolist()) > len(content):
            raise ArtifactError("its weights are compressed")
    loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    _require_whole(loaded)
    return loaded


def _networks(given: object) -> dict[str, object]:
    """Return network settings in `policy_kwargs` of a file that do not follow from the weights.

    A class is stored as a pickle, next to its name as text. For activations of torch, the name is enough.
    """
    if not isinstance(given, dict):
        return {}
    found: dict[str, object] = {name: given[name] for name in _STATED if name in given}
    arguments = given.get("features_extractor_kwargs")
    scaled = isinstance(arguments, dict) and arguments.get("normalized_image") is True
    if scaled or given.get("normalize_images") is False:  # then all 3-dimensional arrays are images
        found["features_extractor_kwargs"] = {"normalized_image": True}
    activation = given.get("activation_fn")
    if isinstance(activation, str):
        named = ACTIVATION.fullmatch(activation)
        found["activation_fn"] = named["name"] if named else activation
    extractor = given.get("features_extractor_class")
    if isinstance(extractor, str) and not _EXTRACTOR.fullmatch(extractor):  # weights imply the documented ones
        found["features_extractor_class"] = extractor
    return found


def _observations(given: object) -> dict[str, Shape]:
    """Return entry -> shape, read from the text next to a pickled space; see `Foreign`. None is an unknown shape."""
    if not isinstance(given, dict):
        return {}
    if isinstance(entries := given.get("spaces"), str):
        return {found["key"] or found["quoted"]: _shape(found["shape"]) for found in _ENTRY.finditer(entries)}
    shape = given.get("_shape", given.get("shape"))
    return {"": tuple(shape)} if isinstance(shape, list) and all(type(n) is int for n in shape) else {}


def _shape(text: str | None) -> Shape:
    """Return the numbers in a text as a shape; None for None."""
    return None if text is None else tuple(map(int, re.findall(r"\d+", text)))


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return the unpacked content of a member of the archive.

    Raises:
        ArtifactError: it is longer than `most` bytes. This is checked before unpacking.
    """
    if (size := archive.getinfo(name).file_size) > most:
        raise ArtifactError(f"its {name!r} is {size} bytes long, more than {most}")
    return archive.read(name)


def _require_whole(loaded: object) -> None:
    """Check that all tensors are plain, finite, and stored completely.

    Raises:
        ArtifactError: a tensor is not, or repeats numbers so that it is larger than its storage.
    """
    for name, value in loaded.items() if isinstance(loaded, Mapping) else ():
        if not isinstance(name, str):
            raise ArtifactError("its weights have no names")
        if not isinstance(value, Tensor):
            continue
        if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized or value.is_nested:
            raise ArtifactError(f"its weight {name!r} is not a plain tensor")
        if value.nbytes > value.untyped_storage().nbytes():
            raise ArtifactError(f"its weight {name!r} of shape {tuple(value.shape)} is larger than what the file holds")
        # whole numbers are counters, such as those of the passes of batch normalization
        if not (value.is_floating_point() or value.dtype is torch.int64) or not bool(value.isfinite().all()):
            raise ArtifactError(f"its weight {name!r} holds something else than finite numbers")
