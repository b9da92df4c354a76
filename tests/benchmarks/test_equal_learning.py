"""The comparison of learning over many seeds: its curves, statistics, stored results and page."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import rlsdk
from benchmarks import equal_learning, equal_page
from benchmarks.equal_learning import Task
from benchmarks.equal_page import EQUAL, HIGHER, LOWER, MARKS, OPEN, Comparison, compare, significant, verdict
from benchmarks.equal_run import Recorder, curve, train
from benchmarks.marked import replaced
from benchmarks.peers import translated
from rlsdk.registry import plugins
from rlsdk.tree import flatten
from rlsdk_interchange.sb3 import import_sb3

TASK = Task("ppo/CartPole-v1", "stable_baselines3.PPO", 256, 3, (0.0, 100.0), 0.1, 2, {"n_steps": 32})
NAN = float("nan")


# --- curves


def test_a_curve_by_hand() -> None:
    first = [(3, 1.0), (2, 5.0), (3, 9.0)]  # they end at the steps 3, 5 and 8 of 10
    second = [(5, 7.0), (4, NAN), (2, 100.0)]  # the second did not end, the third ends too late
    assert curve([first, second], 20, points=5).tolist() == [1.0, 1.0, 6.0, 9.0, 9.0]


def test_parts_before_the_first_end_have_its_return() -> None:
    assert curve([[(6, 4.0)]], 8, points=4).tolist() == [4.0] * 4


def test_a_training_without_an_episode_has_no_curve() -> None:
    with pytest.raises(ValueError, match="no episode ended in 10 steps; give more steps"):
        curve([[(4, NAN)], []], 10)


def test_episodes_are_recorded_as_they_are_played() -> None:
    episodes: list[tuple[int, float]] = []
    env = Recorder(gymnasium.make("CartPole-v1"), episodes)
    for steps in (None, 3, None):
        env.reset(seed=1)
        ended, count = False, 0
        while not ended and count != steps:
            _, _, terminated, truncated, _ = env.step(0)
            ended, count = terminated or truncated, count + 1
    (length, total), unfinished, again = episodes
    assert length == total == again[0] == again[1] > 3
    assert unfinished[0] == 3
    assert np.isnan(unfinished[1])


@pytest.mark.parametrize("side", equal_learning.SIDES)
def test_a_training_repeats_itself(side: str) -> None:
    if side == "peer":
        pytest.importorskip("stable_baselines3")
    first, other = train(TASK.spec(), side, 0)["curve"], train(TASK.spec(), side, 1)["curve"]
    assert train(TASK.spec(), side, 0)["curve"] == first != other
    assert len(first) == len(other) == equal_page.POINTS


# --- statistics


def samples(shift: float, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return rng.normal(10.0 + shift, 2.0, 30), rng.normal(10.0, 5.0, 20)


@pytest.mark.parametrize("shift", [-4.0, -0.5, 0.0, 1.0, 6.0])
@pytest.mark.parametrize("margin", [0.5, 3.0])
def test_statistics_equal_those_of_scipy(shift: float, margin: float) -> None:
    from scipy.stats import ttest_ind

    x, y = samples(shift)
    found, reference = compare(x, y, margin), ttest_ind(x, y, equal_var=False)
    interval = reference.confidence_interval(0.95)
    assert found.chance == pytest.approx(reference.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    above = ttest_ind(x + margin, y, equal_var=False, alternative="greater").pvalue
    below = ttest_ind(x - margin, y, equal_var=False, alternative="less").pvalue
    assert found.equality == pytest.approx(max(above, below), rel=1e-9)


def test_equality_means_that_the_90_percent_interval_is_inside_the_margin() -> None:
    from scipy.stats import ttest_ind

    for seed in range(40):
        x, y = samples(1.0, seed)
        interval = ttest_ind(x, y, equal_var=False).confidence_interval(0.9)
        for margin in (2.0, 3.0):
            inside = -margin < interval.low and interval.high < margin
            assert (compare(x, y, margin).equality < 0.05) == inside


def test_samples_without_variance() -> None:
    same, apart = compare([5.0, 5.0], [5.0, 5.0], 1.0), compare([5.0, 5.0], [8.0, 8.0], 1.0)
    assert (same.difference, same.chance, same.equality) == (0.0, 1.0, 0.0)
    assert (apart.difference, apart.chance, apart.equality) == (-3.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("chances", "expected"),
    [
        ([0.01, 0.02, 0.03], [True, True, True]),  # 0.05/3, 0.05/2, 0.05
        ([0.03, 0.02, 0.9], [False, False, False]),  # 0.02 > 0.05/3
        ([0.9, 0.001, 0.026], [False, True, False]),  # 0.026 > 0.05/2
        ([0.04], [True]),
        ([], []),
    ],
)
def test_significance_over_several_tests(chances: list[float], expected: list[bool]) -> None:
    assert significant(chances) == expected


def a_comparison(difference: float, equality: float) -> Comparison:
    return Comparison(difference, 0.0, difference, difference - 1, difference + 1, 0.0, equality)


def test_verdicts() -> None:
    near, far, below = a_comparison(1.0, 0.01), a_comparison(2.0, 0.3), a_comparison(-2.0, 0.3)
    assert verdict((near, near), [False, False]) == EQUAL
    assert verdict((near, near), [False, True]) == f"{EQUAL}, but {HIGHER}"
    assert verdict((near, far), [False, False]) == OPEN
    assert verdict((near, far), [False, True]) == HIGHER
    assert verdict((below, near), [True, False]) == LOWER
    assert verdict((below, far), [True, True]) == f"{HIGHER} and {LOWER}"


def test_the_measures_of_a_curve() -> None:
    whole, end = equal_page.measures({1: [0.0] * 18 + [10.0, 30.0], 0: [1.0] * 20})
    assert whole.tolist() == [1.0, 2.0]
    assert end.tolist() == [1.0, 20.0]


# --- what is trained and stored


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(equal_learning, "DATA", tmp_path / "data.jsonl")
    return tmp_path / "data.jsonl"


def outcome(*points: float) -> dict[str, Any]:
    return {"curve": list(points), "cpu": 1.0}


def test_a_stopped_command_continues(data: Path) -> None:
    known = {TASK.name: TASK}

    def todo(seeds: int | None = None) -> list[tuple[int, str]]:
        return [job[1:] for job in equal_learning.missing([TASK], seeds, equal_learning.stored(known))]

    assert todo() == [(0, "ours"), (0, "peer"), (1, "peer"), (1, "ours"), (2, "ours"), (2, "peer")]
    equal_learning.store((TASK, 0, "ours"), outcome(1.0))
    with data.open("a") as stream:
        stream.write('{"task": "ppo/CartPole-v1", "set')  # the command was killed here
    equal_learning.store((TASK, 1, "peer"), outcome(2.0))
    assert todo() == [(0, "peer"), (1, "ours"), (2, "ours"), (2, "peer")]
    assert todo(1) == [(0, "peer")]
    assert equal_learning.stored(known)[TASK.name] == {"ours": {0: [1.0]}, "peer": {1: [2.0]}, "coupled": {}}
    coupled = equal_learning.missing([TASK], 2, equal_learning.stored(known), ("peer", equal_learning.COUPLED))
    assert [job[1:] for job in coupled] == [(0, "peer"), (0, "coupled"), (1, "coupled")]


def test_results_with_other_settings_do_not_count(data: Path) -> None:
    equal_learning.store((TASK, 0, "ours"), outcome(1.0))
    other = Task(TASK.name, TASK.peer, TASK.steps, 3, (0.0, 9.0), 0.5, 2, {"n_steps": 16})
    assert equal_learning.stored({TASK.name: other})[TASK.name]["ours"] == {}
    wider = Task(TASK.name, TASK.peer, TASK.steps, 9, (0.0, 9.0), 0.5, 2, {"n_steps": 32})
    assert equal_learning.stored({TASK.name: wider})[TASK.name]["ours"] == {0: [1.0]}


def test_trainings_run_in_processes(data: Path) -> None:
    pytest.importorskip("stable_baselines3")
    jobs = equal_learning.missing([TASK], 1, equal_learning.stored({TASK.name: TASK}))
    equal_learning.measure(jobs, 1)
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    assert [row["side"] for row in rows] == ["ours", "peer"]
    assert rows[0]["curve"] == train(TASK.spec(), "ours", 0)["curve"]


def test_a_row_by_hand() -> None:
    task = Task("ppo/rlsdk/Toy-v0", "stable_baselines3.PPO", 5000, 4, (0.0, 100.0), 0.1)
    ours = {0: [10.0] * 20, 1: [12.0] * 20, 2: [11.0] * 20}
    curves = {task.name: {"ours": ours, "peer": {0: [11.0] * 20, 1: [13.0] * 20}}}
    head, _, row = equal_page.table({task.name: task}, curves)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == len(head.strip("|").split("|"))
    shown = ["11.0", "12.0", "-1.0 [-7.0 .. 5.0]"]
    assert cells == ["`ppo`", "Toy-v0", f"{EQUAL} so far", "3, 2 of 4", "5,000", "10.0", *shown, *shown]
    complete = {task.name: {"ours": {**ours, 3: [11.0] * 20}, "peer": dict.fromkeys(range(4), [11.0] * 20)}}
    assert f"| Toy-v0 | {EQUAL} | 4, 4 | 5,000 |" in list(equal_page.table({task.name: task}, complete))[2]
    empty = {task.name: {"ours": {0: [1.0] * 20}, "peer": {}}}
    *_, row = equal_page.table({task.name: task}, empty)
    assert row.startswith("| `ppo` | Toy-v0 | not measured yet | 1, 0 of 4 | 5,000 | 10.0 |  |")


def test_runs_with_the_same_numbers_are_compared_in_pairs() -> None:
    from scipy.stats import ttest_rel

    task = Task("sac/Toy-v0", "stable_baselines3.SAC", 5000, 4, (0.0, 100.0), 0.1)
    rng = np.random.default_rng(0)
    peer = {run: (10.0 * run + rng.normal(size=20)).tolist() for run in range(6)}
    coupled = {run: (np.array(peer[run]) + rng.normal(size=20)).tolist() for run in (1, 2, 4, 5)}
    *_, row = equal_page.coupled_table({task.name: task}, {task.name: {"ours": {}, "peer": peer, "coupled": coupled}})
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    reference = ttest_rel(*([np.mean(side[run]) for run in coupled] for side in (coupled, peer)))
    low, high = reference.confidence_interval(0.95)
    difference = np.mean([np.mean(coupled[run]) - np.mean(peer[run]) for run in coupled])
    assert cells[:6] == ["`sac`", "Toy-v0", EQUAL, "4", "10.0", f"{difference:.1f} [{low:.1f} .. {high:.1f}]"]


# --- the file of tasks and the page


def test_tasks_name_known_algorithms_and_peers() -> None:
    known = {plugin.id for plugin in plugins()}
    for task in equal_learning.tasks().values():
        assert task.algorithm in known, task.name
        assert task.range[1] > task.range[0], task.name
        assert 0.0 < task.margin <= 0.2, task.name
        assert task.steps % task.n_envs == 0, task.name


@pytest.mark.full
@pytest.mark.parametrize("name", equal_learning.tasks())
def test_settings_that_are_not_listed_have_the_same_defaults(name: str) -> None:
    task = equal_learning.tasks()[name]
    library, _, kind = task.peer.rpartition(".")
    parameters = inspect.signature(getattr(pytest.importorskip(library), kind).__init__).parameters
    config = rlsdk.make(task.algorithm, env=task.env, device="cpu", **task.settings).config
    listed, compared = {"env", "policy", "policy_kwargs", "seed", "device", *task.settings}, []
    for setting in set(parameters) - listed:
        if hasattr(config, setting):
            own = getattr(config, setting)
            if setting == "train_freq":
                own = own.count if own.unit == "step" else own
            assert getattr(own, "value", own) == parameters[setting].default, setting
            compared.append(setting)
    assert "learning_rate" in {*compared, *listed}
    assert len(compared) + len(listed) > 10


NO_WEIGHTS = ("optimizer", "normalizer", "epsilon")  # epsilon is computed at the first step


def squares(agents: list[Any]) -> dict[str, NDArray[np.float64]]:
    """Name of a tensor -> the squares of its first values in all agents."""
    found: dict[str, list[Any]] = {}
    for agent in agents:
        for name, value in flatten(agent.get_parameters()).items():
            if isinstance(value, torch.Tensor) and not any(part in name for part in NO_WEIGHTS):
                found.setdefault(name, []).append(value.detach().double().numpy().ravel() ** 2)
    return {name: np.concatenate(values) for name, values in found.items()}


@pytest.mark.full
@pytest.mark.parametrize("name", equal_learning.tasks())
def test_first_weights_have_the_same_size(name: str, tmp_path: Path) -> None:
    task, seeds = equal_learning.tasks()[name], range(8)
    library, _, kind = task.peer.rpartition(".")
    peer = getattr(pytest.importorskip(library), kind)
    ours = [rlsdk.make(task.algorithm, env=task.env, device="cpu", seed=seed, **task.settings) for seed in seeds]
    settings = {key: value for key, value in task.settings.items() if key not in {"policy", "normalize"}}
    theirs = []
    for seed in seeds:
        env = gymnasium.make(task.env)
        given = translated(settings, env.action_space)
        model = peer(task.settings.get("policy", "MlpPolicy"), env, seed=seed, device="cpu", **given)
        model.save(tmp_path / "peer.zip")
        theirs.append(import_sb3(tmp_path / "peer.zip", task.algorithm, env=task.env))
    mine, others = squares(ours), squares(theirs)
    assert set(mine) == set(others)
    for tensor, values in mine.items():
        # five standard errors; orthogonal and zero weights have the same squares in every agent
        allowed = 5 * np.hypot(values.std(), others[tensor].std()) / np.sqrt(len(values)) + 1e-12
        assert abs(values.mean() - others[tensor].mean()) < allowed, tensor


def test_the_page_is_that_of_the_stored_results() -> None:
    page = equal_page.PAGE.read_text(encoding="utf-8")
    assert page == replaced(page, *MARKS, equal_page.measured()), "run python -m benchmarks.equal_learning --page"


def test_the_picture_is_that_of_the_stored_results() -> None:
    known = equal_learning.tasks()
    words = equal_page.caption(known, equal_learning.stored(known))
    assert words in equal_page.PICTURE.read_text(encoding="utf-8"), "run python -m benchmarks.equal_learning --page"


def test_every_stored_result_is_of_a_task() -> None:
    known, seen = equal_learning.tasks(), set()
    for row in equal_learning.rows():
        key = row["task"], row["side"], row["run"]
        assert key not in seen, f"{key} twice"
        assert row["task"] in known
        assert row["settings"] == known[row["task"]].digest(), f"{key} has other settings than the file"
        assert len(row["curve"]) == equal_page.POINTS
        assert np.isfinite(row["curve"]).all()
        seen.add(key)
    assert equal_learning.DATA.stat().st_size < 1_000_000
