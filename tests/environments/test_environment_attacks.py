"""Malicious states of environments: generators that read outside their memory, and attributes that are not state."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlsdk.environments.states import capture, restore
from rlsdk.environments.states.capture import Assigned
from rlsdk.environments.states.generators import legacy_generator, numpy_generator, python_generator
from rlsdk.errors import ArtifactError
from rlsdk.runtime.process import Streams, put_back
from tests.altered_files.environments import Assorted, Recording
from tests.tables import in_one_test

KINDS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
POSITIONS = (-1, -5, 625, 700, 10**8, -(10**8), 2**31 - 1, 2**40, 1.0, True, "3", None)


@in_one_test
@pytest.mark.parametrize("kind", KINDS)
def test_generators_come_back_as_they_were(kind: str) -> None:
    generator = np.random.Generator(getattr(np.random, kind)(7))
    generator.integers(10, size=3, dtype=np.uint32)
    copy = numpy_generator(generator.bit_generator.state)
    assert copy.normal() == generator.normal()


@in_one_test
@pytest.mark.parametrize("kind", KINDS)
def test_generators_that_cannot_be_are_refused(kind: str) -> None:
    state = getattr(np.random, kind)(7).state
    pending: list[tuple[dict[str, Any], Any]] = [(state, name) for name in state]
    pending += [(state["state"], name) for name in state["state"]]
    for table, name in pending:
        original = table.pop(name)
        with pytest.raises(ArtifactError):
            numpy_generator(state)
        for wrong in (-1, 2**200, 1.0, True, "3", None, np.zeros(3, np.int64), np.zeros(1000, np.uint64), {}, []):
            table[name] = wrong
            with pytest.raises(ArtifactError):
                numpy_generator(state)
        table[name] = original
    numpy_generator(state)
    with pytest.raises(ArtifactError):
        numpy_generator({**state, "bit_generator": "system"})


def test_positions_outside_a_generator_are_refused() -> None:
    twister, philox = np.random.MT19937(7).state, np.random.Philox(7).state
    legacy = np.random.RandomState(7).get_state(legacy=False)
    for position in POSITIONS:
        for state, table, name, make in (
            (twister, twister["state"], "pos", numpy_generator),
            (philox, philox, "buffer_pos", numpy_generator),
            (legacy, legacy["state"], "pos", legacy_generator),
        ):
            original, table[name] = table[name], position
            with pytest.raises(ArtifactError):
                make(state)
            table[name] = original
    version, words, gauss = random.Random(7).getstate()
    assert python_generator((version, words, gauss)).random() == random.Random(7).random()
    for last in POSITIONS:
        with pytest.raises(ArtifactError):
            python_generator((version, (*words[:-1], last), gauss))
    for wrong in (
        (2, words, gauss),
        (version, words[:-1], gauss),
        (version, words, "x"),
        (version, (0,) * 625, None),
        3,
    ):
        with pytest.raises(ArtifactError):
            python_generator(wrong)


def test_generators_without_numbers_are_refused() -> None:
    """Generators whose state is all zeros are refused: drawing integers from them never ends."""
    state = np.random.MT19937(7).state
    state["state"]["key"] = np.zeros(624, np.uint32)
    with pytest.raises(ArtifactError):
        numpy_generator(state)
    state = np.random.PCG64(7).state
    state["state"] = {"state": 0, "inc": 0}
    with pytest.raises(ArtifactError):
        numpy_generator(state)


def test_torch_generators_are_looked_at() -> None:
    streams = Streams(3)
    torch.rand(5, generator=streams["a"])
    whole = streams.state_dict()["a"]
    other = Streams(4)
    other.load_state_dict({"a": whole})
    assert torch.rand(1, generator=other["a"]) == torch.rand(1, generator=streams["a"])
    for place, value in ((8, 0), (8, 625), (8, 2**31 - 1), (16, 625), (16, 2**40), (12, 0), (16, -1)):
        state = whole.clone().numpy()
        state[place : place + 4].view(np.int32)[0] = np.int64(value).astype(np.int32)
        if value > 2**31:
            state[place : place + 8].view(np.int64)[0] = value
        with pytest.raises(ValueError, match="generator"):
            put_back(torch.Generator(), torch.from_numpy(state))
    for wrong in (whole[:-1], whole.float(), torch.zeros(5056, dtype=torch.uint8), "x", None):
        with pytest.raises(ValueError, match="generator"):
            put_back(torch.Generator(), wrong)


def test_the_state_of_a_generator_on_a_gpu_seeds_one_on_the_cpu() -> None:
    """It has 16 bytes, a seed and a position. Equal states give equal numbers, other states others."""
    draws = []
    for position in (0, 0, 4):
        generator = torch.Generator().manual_seed(len(draws))
        put_back(generator, torch.from_numpy(np.array([7, position], np.int64)).view(torch.uint8))
        draws.append(torch.rand(3, generator=generator))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    with pytest.raises(ValueError, match="generator"):
        put_back(torch.Generator(), torch.zeros(17, dtype=torch.uint8))


def changed(state: dict[str, Any], layer: int, name: str, code: Any) -> dict[str, Any]:
    """The state with the attribute `name` of the wrapper `layer` set to `code`."""
    layout = json.loads(state["layout"])
    layout[layer]["attributes"][name] = code
    return {**state, "layout": json.dumps(layout)}


def limited() -> Any:
    return gym.wrappers.TimeLimit(Recording(Assorted()), 50)


@pytest.mark.parametrize(
    ("layer", "name", "code"),
    [
        (0, "_max_episode_steps", 10**30),
        (0, "_action_space", 5),
        (0, "_metadata", {"dict": []}),
        (1, "video_folder", "/tmp/evil"),
        (1, "prefix", "evil"),
        (1, "every", 1),
        (1, "_video_name", "../../evil"),
        (1, "written", {"list": ["/tmp/evil"]}),
        (2, "folder", "evil"),
        (2, "limit", 10**9),
        (2, "names", {"list": ["one", "/tmp/x"]}),
        (2, "table", {"dict": [["folder", "evil/place"]]}),
        (2, "phase", "a/b"),
    ],
)
def test_what_made_an_environment_stays(layer: int, name: str, code: Any) -> None:
    env, other = limited(), limited()
    env.reset(seed=0)
    env.step(0)
    other.reset(seed=1)
    target = [other, other.env, other.env.env][layer]
    before = repr(vars(target)[name])
    restore(other, changed(capture(env), layer, name, code))
    assert repr(vars(target)[name]) == before
    other.step(1)


@in_one_test
@pytest.mark.parametrize(
    ("layer", "name", "code"),
    [
        (2, "action_space", 5),
        (2, "observation_space", {"list": []}),
        (2, "rule", 3),
        (2, "path", "x"),
        (2, "step", {"constant": True}),
        (2, "step", 3),
        (2, "reset", None),
        (2, "__class__", 3),
        (2, "__dict__", {"dict": []}),
        (2, "unwrapped", 3),
        (2, "brand_new", 3),
        (0, "gravity", 3),
        (2, "twister", {"same": 0}),
        (2, "twister", 3),
        (2, "philox", {"generator": {"dict": [["bit_generator", "PCG64"]]}}),
        (2, "weights", {"tensor": {"array": 10**9, "dtype": "<f4", "shape": [2]}}),
        (2, "recent", {"deque": [], "maxlen": 10**9}),
        (2, "recent", {"deque": [], "maxlen": None}),
        (2, "phase", 3),
        (2, "steps", "3"),
        (2, "visited", {"set": [{"list": []}]}),
        (2, "table", {"dict": [[{"list": []}, 1]]}),
        (2, "table", 5),
        (2, "phase", {"unknown": 3}),
        (2, "steps", {"scalar": {"array": 0, "dtype": "|O", "shape": []}}),
        (2, "steps", {"scalar": {"array": 0, "dtype": "V99999", "shape": []}}),
        (2, "steps", {"scalar": {"array": 0, "dtype": "<f8", "shape": [-1]}}),
    ],
)
def test_other_kinds_of_values_are_refused(layer: int, name: str, code: Any) -> None:
    env, other = limited(), limited()
    env.reset(seed=0)
    other.reset(seed=1)
    with pytest.raises(ArtifactError):
        restore(other, changed(capture(env), layer, name, code))


def test_an_array_of_the_file_is_used_once() -> None:
    """A state may use each array of the file once; otherwise a small file could fill the memory."""
    env = limited()
    env.reset(seed=0)
    array = {"array": 0, "dtype": "<f8", "shape": [3]}
    with pytest.raises(ArtifactError, match="twice"):
        restore(limited(), changed(capture(env), 2, "names", {"list": [array] * 1000}))


def test_keys_that_take_for_ever_to_hash_are_refused() -> None:
    env = limited()
    env.reset(seed=0)
    layout = json.loads(capture(env)["layout"])
    codes: list[Any] = [{"tuple": [0, 0]}]
    first = 1  # the list itself is value 0
    codes += [{"tuple": [{"same": first + i}] * 2} for i in range(60)]
    layout[0]["attributes"] = {"_elapsed_steps": {"list": [*codes, {"set": [{"same": first + 60}]}]}}
    with pytest.raises(ArtifactError, match="key"):
        restore(limited(), {**capture(env), "layout": json.dumps(layout)})


def test_what_is_state_is_seen_in_the_code() -> None:
    class Setting(gym.Env[Any, Any]):
        def __init__(self) -> None:
            self.level, self.limit, self._speed, self.free, self.table = 1, 5, 2, 3, [1]

        @property
        def speed(self) -> int:
            return self._speed

        @speed.setter
        def speed(self, value: int) -> None:
            self._speed = value

        def step(self, action: Any) -> Any:
            self.level += 1

        def reset(self, **_: Any) -> Any:  # type: ignore[override]
            self.speed = 4

    env = Setting()
    assigned = Assigned([env])
    found = {name for name, value in vars(env).items() if assigned.is_state(env, name, value)}
    assert found == {"level", "_speed", "table"}

    class ByName(Setting):
        def change(self, name: str, value: Any) -> None:
            setattr(self, name, value)

    assigned = Assigned([changing := ByName()])
    assert all(assigned.is_state(changing, name, value) for name, value in vars(changing).items())


def test_states_hold_no_places(tmp_path: Path) -> None:
    env = limited()
    env.reset(seed=0)
    assert "videos" not in capture(env)["layout"]
    assert "_max_episode_steps" not in capture(env)["layout"]


def test_mujoco_takes_numbers_of_its_own_shapes_only() -> None:
    pytest.importorskip("mujoco")
    env, other = gym.make("InvertedPendulum-v5"), gym.make("InvertedPendulum-v5")
    env.reset(seed=0)
    other.reset(seed=1)
    state = capture(env)
    layout = json.loads(state["layout"])
    simulation = layout[-1]["attributes"]["data"]["simulation"]
    sizes, values = simulation["sizes"], simulation["values"]
    assert "qpos" in sizes
    assert not {"plugin_data", "body_awake", "moment_colind"} & set(sizes)
    restore(other, state)
    assert np.array_equal(env.unwrapped.data.qpos, other.unwrapped.data.qpos)
    (count,) = values["shape"]
    for wrong in (
        {"sizes": {**sizes, "qpos": sizes["qpos"] + 8}},
        {"sizes": {**sizes, "qpos": -8}},
        {"sizes": {**sizes, "qpos": "16"}},
        {"sizes": {**sizes, "qpos": True}},
        {"sizes": {"unknown": count, **sizes}},
        {"values": {**values, "shape": [count // 8], "dtype": "<f8"}},
        {"values": {**values, "shape": [count - 1]}},
        {"time": "nan"},
    ):
        layout[-1]["attributes"]["data"]["simulation"] = {**simulation, **wrong}
        with pytest.raises(ArtifactError):
            restore(other, {**state, "layout": json.dumps(layout)})
