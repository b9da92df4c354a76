"""Settings that stable-baselines3 stores as pickles are imported, and nothing in a pickle is run."""

from __future__ import annotations

import base64
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import attrs
import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsdk.settings.action_noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from rlsdk.settings.schedules import Constant, Linear, TrainFrequency
from rlsdk_envs.toy import BitFlippingEnv
from rlsdk_interchange.sb3 import import_sb3
from rlsdk_interchange.sb3_pickles import read_setting

peer = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common import noise, utils  # noqa: E402  # they come with the peer
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer  # noqa: E402
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit  # noqa: E402
from stable_baselines3.her import HerReplayBuffer  # noqa: E402
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy  # noqa: E402

from tests.tables import in_one_test  # noqa: E402

COMMON = "stable_baselines3.common"
ZERO, TENTH = np.zeros(1), 0.1 * np.ones(1)
WALK = noise.OrnsteinUhlenbeckActionNoise(ZERO, TENTH, theta=0.2, dt=0.5, initial_noise=np.ones(1, np.float32))
SMALL: dict[str, Any] = {"buffer_size": 500, "learning_starts": 10}
MODELS: dict[str, tuple[Any, str, dict[str, Any], dict[str, Any]]] = {
    "schedules": (
        peer.PPO,
        "CartPole-v1",
        {"learning_rate": utils.LinearSchedule(1e-3, 1e-5, 0.5), "clip_range": 0.15, "clip_range_vf": 0.3},
        {
            "learning_rate": Linear(1e-3, 1e-5, 0.5),
            "clip_range": Constant(0.15),
            "clip_range_vf": Constant(0.3),
        },
    ),
    "falling-clip": (
        peer.PPO,
        "CartPole-v1",
        {"clip_range": utils.LinearSchedule(0.2, 0.1, 1.0)},
        {"clip_range": Linear(0.2, 0.1), "clip_range_vf": None},
    ),
    "steps": (
        peer.DQN,
        "CartPole-v1",
        {**SMALL, "train_freq": 300},
        {"train_freq": TrainFrequency(300, "step"), "replay_buffer_class": None},
    ),
    "episodes": (
        contrib.TQC,
        "Pendulum-v1",
        {**SMALL, "train_freq": (2, "episode")},
        {"train_freq": TrainFrequency(2, "episode"), "target_entropy": -1.0},
    ),
    "normal-noise": (
        peer.SAC,
        "Pendulum-v1",
        {**SMALL, "action_noise": noise.VectorizedActionNoise(noise.NormalActionNoise(ZERO, TENTH), 2)},
        {"action_noise": NormalActionNoise(0.0, 0.1)},
    ),
    "walking-noise": (
        peer.TD3,
        "Pendulum-v1",
        {**SMALL, "action_noise": WALK, "replay_buffer_kwargs": {"handle_timeout_termination": False}},
        {"action_noise": OrnsteinUhlenbeckActionNoise(0.0, 0.1, 0.2, 0.5, 1.0), "replay_buffer_kwargs": None},
    ),
}
GOALS: dict[str, Any] = {"n_sampled_goal": 3, "goal_selection_strategy": GoalSelectionStrategy.EPISODE}


@pytest.mark.parametrize("case", MODELS)
def test_settings_are_imported_without_a_warning(case: str, tmp_path: Path) -> None:
    kind, env, settings, expected = MODELS[case]
    kind("MlpPolicy", env, **settings).save(tmp_path / "model.zip")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = import_sb3(tmp_path / "model.zip", kind.__name__.lower(), env)
    config = attrs.asdict(ours.config, recurse=False)
    assert {name: config[name] for name in expected} == expected


@pytest.mark.parametrize("goals", [GOALS, {**GOALS, "goal_selection_strategy": "episode"}], ids=["enum", "text"])
def test_hindsight_replay_is_imported(goals: dict[str, Any], tmp_path: Path) -> None:
    env = BitFlippingEnv(5)
    theirs = peer.DQN("MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, **SMALL)
    theirs.replay_buffer_kwargs = {**goals, "copy_info_dict": False, "directory": str(tmp_path / "chosen by the file")}
    theirs.save(tmp_path / "model.zip")
    ours = import_sb3(tmp_path / "model.zip", "dqn", BitFlippingEnv(5))
    assert ours.config.replay_buffer_class == "hindsight"
    assert ours.config.replay_buffer_kwargs == {"n_sampled_goal": 3, "goal_selection_strategy": "episode"}
    ours.learn(100)
    assert not (tmp_path / "chosen by the file").exists()


def test_a_given_setting_replaces_that_of_the_file(tmp_path: Path) -> None:
    theirs = peer.PPO("MlpPolicy", "CartPole-v1", learning_rate=utils.LinearSchedule(1e-3, 1e-5, 0.5))
    theirs.save(tmp_path / "model.zip")
    points = {"kind": "piecewise", "points": [[0.0, 1e-3], [1.0, 0.0]]}
    ours = import_sb3(tmp_path / "model.zip", "ppo", "CartPole-v1", learning_rate=points)
    assert ours.config.learning_rate(0.25) == pytest.approx(2.5e-4)


class OwnBuffer(ReplayBuffer):  # type: ignore[misc]
    """A class of a user."""


def test_what_is_unknown_is_named(tmp_path: Path) -> None:
    settings = {
        "train_freq": 7,
        "replay_buffer_class": OwnBuffer,
        "replay_buffer_kwargs": {"handle_timeout_termination": True},
    }
    peer.DQN("MlpPolicy", "CartPole-v1", **SMALL, **settings).save(tmp_path / "model.zip")
    with pytest.warns(UserWarning, match="holds replay_buffer_class only as a pickle of an unknown object"):
        ours = import_sb3(tmp_path / "model.zip", "dqn", "CartPole-v1")
    assert (ours.config.train_freq.count, ours.config.replay_buffer_kwargs) == (7, None)


def stored(value: object, protocol: int = 5) -> dict[str, str]:
    content = value if isinstance(value, bytes) else pickle.dumps(value, protocol)
    return {":type:": "", ":serialized:": base64.b64encode(content).decode()}


VALUES: dict[str, tuple[Any, object]] = {
    "frequency": (TrainFreq(70_000, TrainFrequencyUnit("step")), 70_000),
    "episodes": (TrainFreq(1, TrainFrequencyUnit("episode")), [1, "episode"]),
    "constant": (utils.FloatSchedule(0.2), 0.2),
    "linear": (utils.LinearSchedule(1.0, 0.5, 0.1), {"kind": "linear", "start": 1.0, "end": 0.5, "until": 0.1}),
    "noise": (
        noise.NormalActionNoise(np.array([0.0, 1.0]), np.array([0.5, 0.25], np.float32)),
        {"kind": "normal", "mean": [0.0, 1.0], "sigma": [0.5, 0.25]},
    ),
    "number": (np.float32(-3.0), -3.0),
    "arguments": (GOALS, {"n_sampled_goal": 3, "goal_selection_strategy": "episode"}),
    "uniform": (DictReplayBuffer, None),
    "hindsight": (HerReplayBuffer, "hindsight"),
}


@in_one_test
@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("case", VALUES)
def test_protocols_of_older_versions_of_python_are_read(case: str, protocol: int) -> None:
    value, expected = VALUES[case]
    assert read_setting(stored(value, protocol)) == expected


class ByName:
    """Pickled as Python 3.11.0 to 3.11.3 pickle a member of an Enum, in every version of Python."""

    def __init__(self, kind: type[Any], name: object) -> None:
        self.kind, self.name = kind, name

    def __reduce__(self) -> Any:
        return getattr, (self.kind, self.name)


@in_one_test
@pytest.mark.parametrize("member", [*TrainFrequencyUnit, *GoalSelectionStrategy])
def test_members_of_enums_are_read_by_value_and_by_name(member: Any) -> None:
    by_name, kind = ByName(type(member), member.name), type(member)
    if kind is TrainFrequencyUnit:
        expected: object = 4 if member.value == "step" else [4, "episode"]
        assert read_setting(stored(TrainFreq(4, kind(member.value)))) == expected
        assert read_setting(stored(TrainFreq(4, by_name))) == expected
    else:
        expected = {"goal_selection_strategy": member.name.lower()}
        assert read_setting(stored({"goal_selection_strategy": by_name})) == expected


@pytest.mark.parametrize(
    "unknown", [ByName(TrainFrequencyUnit, "name"), ByName(Path, "cwd"), ByName(GoalSelectionStrategy, 3)]
)
def test_other_attributes_are_not_read(unknown: ByName) -> None:
    entry = stored({"goal_selection_strategy": unknown})
    with pytest.raises(ValueError, match="unknown attribute"):
        read_setting(entry)


def made_by(name: str, values: dict[str, float]) -> Any:
    """A function as a function `name` of a module makes it, which uses the variables `values`."""
    module, _, outer = name.rpartition(".")
    lines = [
        f"def {outer}({', '.join(values)}):",
        "    def func(progress_remaining):",
        f"        return {' + '.join(values)}",
    ]
    namespace: dict[str, Any] = {"__name__": module}
    exec("\n".join([*lines, "    return func"]), namespace)
    return namespace[outer](*values.values())


UTILS = "stable_baselines3.common.utils"
FALLING = {"start": 1.0, "end": 0.5, "end_fraction": 0.1}
FUNCTIONS: dict[str, tuple[Any, object]] = {
    "constant": (made_by(f"{UTILS}.constant_fn", {"val": 0.2}), 0.2),
    "falling": (made_by(f"{UTILS}.get_linear_fn", FALLING), VALUES["linear"][1]),
    "of the zoo": (made_by("rl_zoo3.utils.linear_schedule", {"initial_value_": 0.1}), "lin_0.1"),
    "of the older zoo": (made_by("utils.utils.linear_schedule", {"initial_value": 0.1}), "lin_0.1"),
}


@in_one_test
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("case", FUNCTIONS)
def test_functions_of_older_versions_are_read(case: str, wrapped: bool) -> None:
    function, expected = FUNCTIONS[case]
    function = made_by(f"{UTILS}.get_schedule_fn", {"value_schedule": function}) if wrapped else function
    assert read_setting(stored(cloudpickle.dumps(function))) == expected


@pytest.mark.parametrize(
    "function", [lambda left: left, made_by("user.constant_fn", {"val": 0.2}), made_by(f"{UTILS}.other", {"val": 0.2})]
)
def test_functions_of_users_are_not_read(function: Any) -> None:
    with pytest.raises(ValueError, match="not a"):
        read_setting(stored(cloudpickle.dumps(function)))


class Runs:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def doubled(times: int) -> bytes:
    """A pickle of a dict in a dict ..., each of which holds the one inside twice."""
    return b"\x80\x05}\x94" + b"".join(b"}\x94(\x8c\x01ah%c\x8c\x01bh%cu" % (i, i) for i in range(times)) + b"."


def noise_of(mean: Any) -> Any:
    made = noise.NormalActionNoise(ZERO, TENTH)
    made._mu = mean
    return made


nested = FUNCTIONS["constant"][0]
for _ in range(5):
    nested = made_by(f"{UTILS}.get_schedule_fn", {"value_schedule": nested})


def grown(end: bytes, begin: bytes = b"") -> bytes:
    """A pickle whose tuple holds a tuple twice, which holds a tuple twice ..., and then the operations `end`."""
    twice = b"".join(b"h%ch%c\x86\x94" % (i, i) for i in range(100))
    return b"\x80\x05)\x94" + twice + b"0" + begin + b"h\x64" + end


def text(value: str) -> bytes:
    return b"\x8c%c%b" % (len(value), value.encode())


SCALAR = text("numpy._core.multiarray") + text("scalar") + b"\x93"
FREQUENCY = text(f"{COMMON}.type_aliases") + text("TrainFreq") + b"\x93"
UNIT = text(f"{COMMON}.type_aliases") + text("TrainFrequencyUnit") + b"\x93"
DTYPE = text("numpy") + text("dtype") + b"\x93"
HOSTILE: dict[str, object] = {
    "function": Runs(os.system, "exit 1"),
    "built-in function": Runs(eval, "1"),
    "schedule of schedules": Runs(utils.FloatSchedule, Runs(os.getcwd)),
    "no operands": b"\x80\x05R.",
    "no mark": b"\x80\x05t.",
    "empty": b"",
    "not ended": b"\x80\x05K\x01",
    "unknown memory": b"\x80\x05h\x07.",
    "huge array": b"\x80\x05\x96" + b"\xff" * 7 + b"\x00.",
    "itself": b"\x80\x05}\x94\x8c\x01ah\x00s.",
    "doubled": doubled(200),
    "grown": grown(b"."),
    "grown module": grown(text("a") + b"\x93."),
    "grown name": grown(b"\x93.", text("os")),
    "grown key": grown(b"K\x01s.", b"}"),
    "grown value": grown(b"s.", b"}" + text("a")),
    "grown number": grown(text("a") + b"\x86R.", SCALAR),
    "grown size": grown(b"\x85RC\x04abcd\x86R.", SCALAR + DTYPE),
    "grown frequency": grown(b"\x85R\x86\x81.", FREQUENCY + b"K\x01" + UNIT),
    "function in a function in a function ...": cloudpickle.dumps(nested),
    "state of a function": b"\x80\x05\x8c\x02os\x8c\x06system\x93}b.",
    "text as number": np.str_("a"),
    "time as number": np.datetime64("2026-01-01"),
    "objects as numbers": noise_of(np.array([None, {}], object)),
    "texts as numbers": noise_of(np.array(["a", "b"])),
    "other order of bytes": noise_of(np.ones(2, ">f8")),
}


def test_a_huge_index_takes_no_memory() -> None:
    assert read_setting(stored(b"\x80\x05K\x01r\xff\xff\xff\xff.")) == 1


@in_one_test
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles_are_not_read(case: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_setting(stored(HOSTILE[case]))


@in_one_test
@pytest.mark.parametrize(
    "entry", [None, 3, {}, {":serialized:": 3}, {":serialized:": "~"}, {":serialized:": "A" * 200_000}], ids=repr
)
def test_other_entries_are_refused(entry: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_setting(entry)


@given(st.sampled_from([*VALUES.values(), *FUNCTIONS.values()]), st.data())
def test_damaged_pickles_give_a_setting_or_a_value_error(case: tuple[Any, object], data: st.DataObject) -> None:
    content = bytearray(cloudpickle.dumps(case[0]))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_setting(stored(bytes(content)))
    except ValueError:
        return
    assert found is None or isinstance(found, bool | int | float | str | list | dict)
