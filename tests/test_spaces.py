"""Spaces and observations: translation from gymnasium, storage as JSON, stacking, and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces
from hypothesis import given
from hypothesis import strategies as st

from rlsdk import spaces, tree
from rlsdk.environments import to_gymnasium, to_space
from rlsdk.environments.adapters.observations import ActionDecoder, ObservationBatcher, batch_of
from rlsdk.errors import ArtifactError, DivergenceError, ObservationError, UnsupportedSpaceError
from rlsdk.exploration.behavior import uniform_actions
from rlsdk.networks import FlattenEncoder
from rlsdk_testing.strategies import box_spaces, examples, leaf_spaces, nested_spaces
from tests.tables import in_one_test


@examples
@given(nested_spaces())
def test_translation_and_json_round_trips(space: Any) -> None:
    ours = to_space(space)
    assert to_gymnasium(ours) == space
    assert spaces.from_json(json.loads(json.dumps(spaces.to_json(ours), allow_nan=False))) == ours


@examples
@given(nested_spaces(), st.integers(1, 4), st.integers(0, 2**16))
def test_one_observation_and_a_batch(space: Any, count: int, seed: int) -> None:
    ours = to_space(space)
    space.seed(seed)
    values = [space.sample() for _ in range(count)]
    tensors = ObservationBatcher(ours)(values)
    assert all(len(leaf) == count for leaf in tree.leaves(tensors))
    assert sum(leaf.nbytes for leaf in tree.leaves(tensors)) == count * spaces.nbytes(ours)
    assert batch_of(ours, values[0])[1]
    rows, single = batch_of(ours, _numpy(tensors))
    assert not single
    again = ObservationBatcher(ours)(rows)
    assert all(torch.equal(a, b) for a, b in zip(tree.leaves(tensors), tree.leaves(again), strict=True))


def _numpy(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _numpy(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_numpy(v) for v in value)
    return value.numpy()


BOX = to_space(gym_spaces.Box(-1, 1, (2,), np.float32))


@in_one_test
@pytest.mark.parametrize(
    ("space", "value", "words"),
    [
        (gym_spaces.Box(-1, 1, (2,), np.float32), [np.zeros(3)], r"shape \(3,\)"),
        (gym_spaces.Box(-1, 1, (2,), np.float32), ["ab"], "not numbers"),
        (gym_spaces.Box(-1, 1, (2,), np.float32), [[0, 1], [np.nan, 0]], "environment 1 holds NaN"),
        (gym_spaces.Box(-1, 1, (2,), np.float32), [None], "not numbers"),
        (gym_spaces.Box(0, 255, (1,), np.uint8), [[0.5]], "cast it"),
        (gym_spaces.Discrete(3), [3], "outside"),
        (gym_spaces.Discrete(3), [1.0], "cast it"),
        (gym_spaces.MultiDiscrete([2, 2]), [[0, 2]], "outside"),
        (gym_spaces.MultiBinary(2), [[0, 2]], "outside"),
        (gym_spaces.Dict({"a": gym_spaces.Discrete(2)}), [{"b": 1}], r"\['a'\]"),
        (gym_spaces.Dict({"a": gym_spaces.Discrete(2)}), [{"a": 5}], r"observation\['a'\]"),
    ],
)
def test_bad_observations_name_the_leaf(space: Any, value: Any, words: str) -> None:
    with pytest.raises(ObservationError, match=words):
        ObservationBatcher(to_space(space))(value)


def test_batches_of_the_wrong_shape() -> None:
    for bad in (np.zeros(3), np.zeros((4, 3)), np.zeros((2, 2, 2))):
        with pytest.raises(ObservationError, match="accepted"):
            batch_of(BOX, bad)


@in_one_test
@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"kind": "Ball"},
        {"kind": "Box", "shape": [10**9, 10**9], "dtype": "float32", "low": [0], "high": [1]},
        {"kind": "Box", "shape": [2], "dtype": "object", "low": [0], "high": [1]},
        {"kind": "Box", "shape": [2], "dtype": "float32", "low": [0, 1, 2], "high": [1]},
        {"kind": "Box", "shape": [-2], "dtype": "float32", "low": [0], "high": [1]},
        {"kind": "Discrete", "n": 0, "start": 0},
        {"kind": "Discrete", "n": True, "start": 0},
        {"kind": "MultiDiscrete", "nvec": [2, 3], "start": [0]},
        {"kind": "Dict", "spaces": []},
    ],
)
def test_spaces_in_files_are_checked(data: Any) -> None:
    with pytest.raises(ArtifactError, match="space"):
        spaces.from_json(data)


def test_deeply_nested_spaces_are_refused() -> None:
    data: Any = {"kind": "Discrete", "n": 2, "start": 0}
    for _ in range(1000):
        data = {"kind": "Tuple", "spaces": [data]}
    with pytest.raises(ArtifactError, match="8 deep"):
        spaces.from_json(data)


def test_unknown_spaces_are_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="Text"):
        to_space(gym_spaces.Text(3))
    with pytest.raises(UnsupportedSpaceError, match="flatten"):
        to_space(gym_spaces.MultiDiscrete(np.array([[2, 2], [2, 2]])))


@examples
@given(box_spaces(), st.integers(0, 2**16))
def test_uniform_actions_and_decoding_stay_inside(space: Any, seed: int) -> None:
    ours = to_space(space)
    drawn = uniform_actions(ours, 20, torch.Generator().manual_seed(seed))
    decode = ActionDecoder(ours)
    assert all(space.contains(action) for action in decode(drawn))
    assert all(space.contains(action) for action in decode(drawn * 1e4))


def test_decoding_refuses_nan_and_handles_nested_actions() -> None:
    with pytest.raises(DivergenceError, match="not finite"):
        ActionDecoder(BOX)(torch.tensor([[float("nan"), 0.0]]))
    nested = gym_spaces.Dict(
        {"a": gym_spaces.Discrete(3), "b": gym_spaces.Tuple([gym_spaces.Box(-1, 1, (2,), np.float32)])}
    )
    actions = ActionDecoder(to_space(nested))(
        {"a": torch.tensor([0, 2]), "b": (torch.tensor([[5.0, 0.0], [0.0, -5.0]]),)}
    )
    assert all(nested.contains(action) for action in actions)


@examples
@given(leaf_spaces(), st.integers(0, 2**16))
def test_flat_encoding_matches_gymnasium(space: Any, seed: int) -> None:
    ours = to_space(space)
    space.seed(seed)
    value = space.sample()
    encoded = FlattenEncoder(ours)(ObservationBatcher(ours)([value]))[0].numpy()
    np.testing.assert_allclose(encoded, gym_spaces.flatten(space, value).astype(np.float32), rtol=1e-6)
