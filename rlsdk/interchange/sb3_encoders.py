"""The documented encoders of observations in files of stable-baselines3, and how they see observations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from rlsdk.interchange.sb3_file import Shape
from rlsdk.spaces import Box, Dict, Space

IMAGES = (
    ("features_extractor.cnn.", "encoder.convolutions."),
    ("features_extractor.linear.", "encoder.linear."),
    ("features_extractor.encoders.", "encoder.encoders."),
)
"""Beginnings of names of the weights of encoders, there and here. The last ones are those that `placed` names."""
_WEIGHT = re.compile(
    r"(?P<start>.*?features_extractor\.)(?:extractors\.(?P<entry>[^.]+)\.)?(?P<layer>cnn|linear)(?P<rest>\.[024]\.(?:weight|bias))"
)
_LAYERS = ("cnn.0", "cnn.2", "cnn.4", "linear.0")
_PARTS = {f"{layer}.{part}" for layer in _LAYERS for part in ("weight", "bias")}
"""Weights of the documented encoder of images."""
_CUSTOM = "a custom features extractor is not imported"


def placed(weights: Mapping[str, Tensor], stated: Iterable[str], space: Space) -> dict[str, Tensor]:
    """Weights [..] as plugins translate them: those of an image in a Dict have the number of its entry in `space` in their
    names, "features_extractor.encoders.2.convolutions.0.weight", and not the entry's own name; others stay as they are.

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
    """("Cnn", "MultiInput" or "Mlp", settings of the encoder), from weights [..] called prefix + "features_extractor." + ...,
    with names as `placed` gives them. "Mlp" has no weights: its observations are vectors, or a Dict of them.

    Raises:
        ValueError: a features extractor that this does not know.
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
    """`image_encoder` of several networks, each with its own weights [..].

    Raises:
        ValueError: they have different ones, or one that this does not know.
    """
    found = [image_encoder(weights, prefix) for prefix in prefixes]
    if any(each != found[0] for each in found):
        raise ValueError(_CUSTOM)
    return found[0]


def same_encoder(weights: Mapping[str, Tensor], one: str, other: str) -> bool:
    """Whether weights [..] whose names begin with `one` equal those that begin with `other`, where there are such."""
    pairs = [(weights[name], weights.get(other + name.removeprefix(one))) for name in weights if name.startswith(one)]
    return all(two is None or torch.equal(first, two) for first, two in pairs)


def require_plain(weights: Mapping[str, Tensor]) -> None:
    """Raises ValueError: observations of these weights [..] go through a features extractor, which is not imported."""
    if any("features_extractor" in name for name in weights):
        raise ValueError("encoders of images and custom features extractors are not imported")


# --- how encoders see observations -------------------------------------------------------------------------------------


def convolves_arrays(weights: Iterable[str], space: Space) -> bool:
    """Whether convolutions, found from names of weights, see other arrays of `space` than bytes 0 ... 255."""
    leaves = _leaves(space)
    seen = [leaf for entry in _convolved(weights) if isinstance(leaf := leaves.get(entry), Box)]
    return not all(leaf.is_image for leaf in seen)


def require_same_axes(weights: Iterable[str], stated: Mapping[str, Shape], space: Space) -> None:
    """Images of `space` must reach networks with their axes as in the file: channels first, for layers without convolutions
    too.

    Raises:
        ValueError: they would be read in another order than that in which the model was trained.
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
    """Entries of observations that go through convolutions; "" for those without entries."""
    found = [match for name in weights if (match := _WEIGHT.fullmatch(name))]
    return {match["entry"] or "" for match in found if match["layer"] == "cnn"}


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    """Axes of length 1 do not change the order of numbers."""
    return [n for n in shape if n != 1]
