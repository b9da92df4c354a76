"""Settings: strict types and names, schedules, settings files, and generated TOML files."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlsdk
from rlsdk.errors import SettingsError
from rlsdk.registry import load
from rlsdk.settings import (
    commented_toml,
    describe,
    evolve,
    load_settings,
    merge,
    parse_assignments,
    structure,
    unstructure,
)
from rlsdk.settings.off_policy import parse_entropy_coefficient
from rlsdk.settings.schedules import Constant, Custom, Linear, Piecewise, as_schedule
from tests.effort import limited
from tests.tables import in_one_test


@attrs.frozen
class Inner:
    depth: int = 2


@attrs.frozen
class Sample:
    name: str
    count: int = 1
    rate: float = 0.5
    flag: bool = False
    maybe: int | None = None
    either: str | float = "auto"
    inner: Inner = attrs.field(factory=Inner)


@in_one_test
@pytest.mark.parametrize(
    "values",
    [
        {"count": 3.7},
        {"count": True},
        {"count": "3"},
        {"rate": "0.5"},
        {"rate": False},
        {"flag": "no"},
        {"flag": 1},
        {"name": 5},
        {"maybe": "x"},
        {"either": [1]},
        {"inner": {"depth": "deep"}},
        {"inner": 3},
    ],
)
def test_nothing_is_coerced(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as caught:
        structure({"name": "a", **values}, Sample)
    assert next(iter(values)) in str(caught.value) or "depth" in str(caught.value)


def test_what_fits_is_taken() -> None:
    values = {"name": "a", "count": np.int64(4), "rate": 1, "maybe": None, "either": 2, "inner": {"depth": 7}}
    assert structure(values, Sample) == Sample("a", 4, 1.0, False, None, 2.0, Inner(7))


@pytest.mark.parametrize(("written", "taken"), [(1e6, 1_000_000), (np.float32(8), 8), (0.0, 0), (-2e0, -2)])
def test_a_whole_float_stands_for_a_whole_number(written: Any, taken: int) -> None:
    """A float such as 1e6 is accepted as a whole number. A setting that may also be a float stores a float."""
    sample = structure({"name": "a", "count": written, "maybe": written, "either": written}, Sample)
    assert (sample.count, sample.maybe, sample.either) == (taken, taken, float(taken))
    assert [type(value) for value in (sample.count, sample.maybe, sample.either)] == [int, int, float]


@pytest.mark.parametrize("written", [float("inf"), float("nan"), 1e-3])
def test_other_floats_are_not_whole_numbers(written: float) -> None:
    with pytest.raises(SettingsError, match="is not a whole number"):
        structure({"name": "a", "count": written}, Sample)


def test_every_problem_is_listed_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        structure({"name": 1, "count": "x", "flagg": True}, Sample)
    text = str(caught.value)
    assert all(word in text for word in ("name", "count", "'flagg'; did you mean 'flag'"))


def test_missing_and_evolve() -> None:
    with pytest.raises(SettingsError, match="'name' is missing"):
        structure({}, Sample)
    assert evolve(Sample("a"), {"count": 5}).count == 5
    with pytest.raises(SettingsError, match="did you mean 'count'"):
        evolve(Sample("a"), {"cout": 5})


@in_one_test
@pytest.mark.parametrize(
    ("written", "values"),
    [
        (3e-4, [3e-4] * 3),
        (1, [1.0] * 3),
        ("lin_0.2", [0.2, 0.1, 0.0]),
        ("0.5", [0.5] * 3),
        ({"kind": "linear", "start": 1.0, "end": 0.5}, [1.0, 0.75, 0.5]),
        ({"kind": "linear", "start": 1.0, "until": 0.5}, [1.0, 0.0, 0.0]),
        ({"kind": "piecewise", "points": [[0.0, 4.0], [0.5, 2.0], [1.0, 2.0]]}, [4.0, 2.0, 2.0]),
        (lambda remaining: remaining**2, [1.0, 0.25, 0.0]),
    ],
)
def test_schedules(written: Any, values: list[float]) -> None:
    schedule = as_schedule(written)
    assert [schedule(r) for r in (1.0, 0.5, 0.0)] == pytest.approx(values)
    if not callable(written):
        assert as_schedule(schedule.to_setting()) == schedule


@in_one_test
@pytest.mark.parametrize(
    "written",
    [
        "lin_",
        "exp_3",
        True,
        None,
        [1],
        {"kind": "cosine"},
        {"kind": "linear", "stop": 1},
        {"kind": "custom", "name": "f"},
    ],
)
def test_bad_schedules(written: Any) -> None:
    with pytest.raises(SettingsError):
        as_schedule(written)
    with pytest.raises(SettingsError):
        Piecewise([(0.5, 1.0), (0.1, 2.0)])
    with pytest.raises(SettingsError):
        Linear(1.0, 0.0, until=0.0)


@given(st.lists(st.integers(0, 64), min_size=1, max_size=5, unique=True), st.integers(0, 256))
def test_piecewise_equals_numpy(shares: list[int], part: int) -> None:
    points, done = [(share / 64, float(i * i)) for i, share in enumerate(sorted(shares))], part / 256
    expected = np.interp(done, [p[0] for p in points], [p[1] for p in points])
    assert Piecewise(points)(1.0 - done) == pytest.approx(float(expected), rel=1e-6, abs=1e-6)


def test_schedules_of_users_are_asked_a_few_times_and_points_exactly() -> None:
    asked: list[float] = []
    agent = rlsdk.make("ppo", env="CartPole-v1", learning_rate=lambda left: asked.append(left) or 1e-3, n_steps=32)
    assert len(asked) <= 12
    asked.clear()
    agent.learn(64)
    assert len(asked) == 2  # once per update
    dip = Piecewise([(0.0, 1.0), (0.6, 1.0), (0.61, -1.0), (0.62, 1.0)])
    with pytest.raises(SettingsError, match=r"learning_rate must stay finite and not negative, but reaches -1"):
        rlsdk.make("ppo", env="CartPole-v1", learning_rate=dip)


def test_functions_stay_functions_and_are_not_written() -> None:
    schedule = as_schedule(abs)
    assert isinstance(schedule, Custom)
    assert schedule.to_setting() == {"kind": "custom", "name": "abs"}
    assert isinstance(as_schedule(Constant(1.0)), Constant)


def test_assignments() -> None:
    text = ["a.b=1e-3", "a.c=[1, 2]", "d=lin_3e-4", "e=true", "f=none", "g='1'", "h=x=y"]
    expected = {"a": {"b": 1e-3, "c": [1, 2]}, "d": "lin_3e-4", "e": True, "f": None, "g": "1", "h": "x=y"}
    assert parse_assignments(text) == expected
    for bad in ("novalue", "=3", "a..b=1"):
        with pytest.raises(SettingsError, match="NAME=VALUE"):
            parse_assignments([bad])


def test_files(tmp_path: Path) -> None:
    (toml := tmp_path / "a.toml").write_text("gamma = 0.9\n[policy_kwargs]\nn_critics = 3\n")
    assert load_settings(toml) == {"gamma": 0.9, "policy_kwargs": {"n_critics": 3}}
    for name, text in (("b.toml", "x = "), ("c.yaml", "a: 1"), ("d.json", "{}")):
        (tmp_path / name).write_text(text)
        with pytest.raises(SettingsError, match=name):
            load_settings(tmp_path / name)
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(tmp_path / "nowhere.toml")


def test_merge_goes_table_by_table() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "d": {"e": 1}}) == {
        "a": {"b": 9, "c": 2},
        "d": {"e": 1},
    }


def test_the_commented_file_is_the_settings() -> None:
    kind = load("tqc").config_type
    config = structure(
        {
            "policy": "MlpPolicy",
            "learning_rate": "lin_1e-3",
            "action_noise": {"kind": "normal", "mean": 0, "sigma": 0.1},
        },
        kind,
    )
    text = commented_toml(kind, unstructure(config), header="two\nlines")
    assert text.startswith("# two\n# lines\n")
    assert structure(tomllib.loads(text), kind) == config
    for doc in describe(kind):
        assert doc.help.split()[0] in text


def test_a_schedule_without_a_kind_says_what_is_accepted() -> None:
    with pytest.raises(SettingsError, match=r"the schedule \{'a': 1\} has no kind; write a number"):
        as_schedule({"a": 1})


def test_files_beyond_the_limits_cost_little(tmp_path: Path) -> None:
    for text, words in (
        ("a = " + "[" * 5000, "nested too deeply"),
        (".".join("a" * 4000) + " = 1", "nested too deeply"),
        (".".join("a" * 20_000) + " = 1", "is larger than 16 kB"),
    ):
        (path := tmp_path / "bad.toml").write_text(text)
        with limited(), pytest.raises(SettingsError, match=words):
            load_settings(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_no_settings_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(SettingsError, match="is not a regular file"):
        load_settings(tmp_path / "pipe.toml")


@in_one_test
@pytest.mark.parametrize(
    ("algorithm", "setting"),
    [
        ("ppo", "clip_range"),
        ("ppo", "learning_rate"),
        ("td3", "target_noise_clip"),
        ("ars", "delta_std"),
    ],
)
@pytest.mark.parametrize("value", [1e39, 1e308, 10**400])
def test_numbers_beyond_float32_are_refused(algorithm: str, setting: str, value: float) -> None:
    """torch raises a RuntimeError for them, in the middle of a training."""
    with pytest.raises(SettingsError, match=setting):
        structure({"policy": "MlpPolicy", "env": "X", setting: value}, load(algorithm).config_type)


@in_one_test
@pytest.mark.parametrize(
    ("algorithm", "setting", "value"),
    [
        ("pqn", "batch_size", 10**30),
        ("ppo", "vf_coef", 1e20),
        ("sac", "ent_coef", 1e20),
        ("sac", "ent_coef", "auto_1e20"),
        ("sac", "target_entropy", -1e20),
        ("cql", "alpha", 1e20),
        ("cql", "threshold", -1e20),
        ("cql", "target_entropy", 1e20),
        ("dqn", "max_grad_norm", float("nan")),
        *((name, "policy_kwargs.n_critics", 10**9) for name in ("sac", "td3", "tqc", "discrete-sac", "iql", "cql")),
        *((name, "policy_kwargs.n_quantiles", 10**9) for name in ("tqc", "qrdqn")),
        *((name, "policy_kwargs.lstm_hidden_size", 10**9) for name in ("recurrent-ppo", "acer")),
    ],
)
def test_numbers_that_no_training_can_use_are_refused(algorithm: str, setting: str, value: Any) -> None:
    """torch takes whole numbers of 64 bits. Adam squares gradients: infinite squares stop the training, unseen."""
    group, _, name = setting.rpartition(".")
    given: dict[str, Any] = {group: {name: value}} if group else {name: value}

    def checked() -> None:
        made = structure({"policy": "MlpPolicy", "env": "X", **given}, load(algorithm).config_type)
        parse_entropy_coefficient(made.ent_coef)  # when parts are built

    with pytest.raises(SettingsError, match=rf"{name}.*(1e\+?18|outside)"):
        checked()
