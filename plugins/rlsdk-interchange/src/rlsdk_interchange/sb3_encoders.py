"""The documented encoders of observations in files of stable-baselines3, and the form of observations that they read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from rlsdk.spaces import Box, Dict, Space
from rlsdk_interchange.sb3_file import Shape

IMAGES = (
    ("features_extractor.cnn.", "encoder.convolutions."),
    ("features_extractor.linear.", "encoder.linear."),
    ("features_extractor.encoders.", "encoder.encoders."),
)
"""Pairs of prefixes of names of encoder weights: in stable-baselines3, in rlsdk. `placed` introduces the last one."""
_WEIGHT = re.compile(
    r"(?P<start>.*?features_extractor\.)(?:extractors\.(?P<entry>[^.]+)\.)?(?P<layer>cnn|linear)(?P<rest>\.[024]\.(?:weight|bias))"
)
_LAYERS = ("cnn.0", "cnn.2", "cnn.4", "linear.0")
_PARTS = {f"{layer}.{part}" for layer in _LAYERS for part in ("weight", "bias")}
"""Names of the weights of the documented image encoder."""
_CUSTOM = "a custom features extractor is not imported"


def placed(weights: Mapping[str, Tensor], stated: Iterable[str], space: Space) -> dict[str, Tensor]:
    """Return the weights [..] with the names that plugins translate.

    Weights of an image in a Dict contain the number of its entry in `space` instead of the entry's name:
    "features_extractor.encoders.2.convolutions.0.weight". Other names do not change.

    Raises:
        ValueError: `space` has other entries than those `stated` in the file, or has them in another order.
    """
    own = list(space.spaces) if isinstance(space, Dict) else []
    theirs = [entry for entry in stated if entry]
    if (own or theirs) and own != theirs and (own or _has_entries(weights)):
        raise ValueError(f"it has {_listed(own)}; the model was trained on {_listed(theirs)}")
    return {_placed_name(name, own): weight for name, weight in weights.items()}


def _placed_name(name: str, entries: list[str]) -> str:
    match = _WEIGHT.fullmatch(name)
    if match is None or match["entry"] not in entries:
        return name
    layer = "convolutions" if match["layer"] == "cnn" else match["layer"]
    return f"{match['start']}encoders.{entries.index(match['entry'])}.{layer}{match['rest']}"


def _has_entries(weights: Iterable[str]) -> bool:
    return any((match := _WEIGHT.fullmatch(name)) and match["entry"] for name in weights)


def _listed(entries: Sequence[str]) -> str:
    return f"the entries {', '.join(map(repr, entries))}, in this order" if entries else "observations without entries"


def image_encoder(weights: Mapping[str, Tensor], prefix: str = "") -> tuple[str, dict[str, object]]:
    """Return ("Cnn", "MultiInput" or "Mlp", settings of the encoder) for weights [..] with names from `placed`.

    Only weights whose names begin with `prefix` + "features_extractor." belong to the encoder. "Mlp" has none: observations are
    vectors, or a Dict of vectors.

    Raises:
        ValueError: the weights belong to another features extractor.
    """
    start = f"{prefix}features_extractor."
    found = {name.removeprefix(start) for name in weights if name.startswith(start)}
    places = {name.split(".")[1] for name in found if name.startswith("encoders.")}
    parts = {part.replace("cnn", "convolutions") for part in _PARTS}
    of_entries = {f"encoders.{place}.{part}" for place in places for part in parts}
    if found not in (set(), _PARTS, of_entries):
        raise ValueError(_CUSTOM)
    if not found:
        return "Mlp", {}
    kind, setting, usual = ("MultiInput", "cnn_output_dim", 256) if places else ("Cnn", "features_dim", 512)
    ends = {len(weights[f"{start}{name}"]) for name in found if name.endswith("linear.0.weight")}
    if len(ends) > 1:
        raise ValueError(_CUSTOM)
    width = ends.pop()
    return kind, {} if width == usual else {"features_extractor_kwargs": {setting: width}}


def common_encoder(weights: Mapping[str, Tensor], prefixes: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Return `image_encoder` of several networks, each with its own weights [..].

    Raises:
        ValueError: the networks have different encoders, or one that is not documented.
    """
    found = [image_encoder(weights, prefix) for prefix in prefixes]
    if any(each != found[0] for each in found):
        raise ValueError(_CUSTOM)
    return found[0]


def same_encoder(weights: Mapping[str, Tensor], one: str, other: str) -> bool:
    """Whether the weights [..] with the prefix `one` equal those with the prefix `other`, or the latter do not exist."""
    pairs = [(weights[name], weights.get(other + name.removeprefix(one))) for name in weights if name.startswith(one)]
    return all(two is None or torch.equal(first, two) for first, two in pairs)


def require_plain(weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError if the weights [..] include a features extractor, which is not imported."""
    if any("features_extractor" in name for name in weights):
        raise ValueError("encoders of images and custom features extractors are not imported")


# --- the form of observations that encoders read -----------------------------------------------------------------------


def convolves_arrays(weights: Iterable[str], space: Space) -> bool:
    """Whether convolutions, found by names of weights, read arrays of `space` that are not images of bytes 0 to 255."""
    leaves = _leaves(space)
    seen = [leaf for entry in _convolved(weights) if isinstance(leaf := leaves.get(entry), Box)]
    return not all(leaf.is_image for leaf in seen)


def require_same_axes(weights: Iterable[str], stated: Mapping[str, Shape], space: Space) -> None:
    """Check that networks read the axes of images in `space` in the order of the file: channels first.

    This also matters for layers without convolutions.

    Raises:
        ValueError: images would be read in another order than in the training.
    """
    convolved = _convolved(weights)
    for entry, leaf in _leaves(space).items():
        theirs = stated.get(entry)
        if theirs is None or not isinstance(leaf, Box) or not (leaf.is_image or entry in convolved):
            continue
        turned = entry in convolved and leaf.is_image and leaf.channels_last
        seen = (leaf.shape[-1], *leaf.shape[:-1]) if turned else leaf.shape
        if _without_ones(seen) != _without_ones(theirs):
            name = f"images {entry!r}" if entry else "images"
            raise ValueError(f"its {name} are {leaf.shape}; the model reads them as {theirs}, with channels first")


def _leaves(space: Space) -> dict[str, Space]:
    return dict(space.spaces) if isinstance(space, Dict) else {"": space}


def _convolved(weights: Iterable[str]) -> set[str]:
    """Return the entries of observations that go through convolutions; "" for observations without entries."""
    found = [match for name in weights if (match := _WEIGHT.fullmatch(name))]
    return {match["entry"] or "" for match in found if match["layer"] == "cnn"}


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    """Return the lengths other than 1: axes of length 1 do not change the order of numbers."""
    return [n for n in shape if n != 1]
