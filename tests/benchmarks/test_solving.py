"""The benchmark of the time until a task is solved: its clock, criterion and table. No test asserts a duration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import solving
from benchmarks.solving_run import Clock, Criterion, EndedError, mean_return
from rlsdk.registry import preset


class Watch:
    """A fake clock: the test sets `time`, and a call returns (CPU seconds, wall seconds)."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> tuple[float, float]:
        return self.time, 10 * self.time


def criterion(scores: list[float], watch: Watch, threshold: float = 5.0, limit: float = float("inf")) -> Criterion:
    def evaluate() -> float:
        watch.time += 100.0
        return scores.pop(0)

    return Criterion(threshold, 10, evaluate, Clock(watch), limit)


def train(asked: Criterion, watch: Watch, rounds: int) -> Any:
    """Simulate `rounds` rounds of 4 steps; each round takes one second. Return the outcome."""
    steps = [0]

    def run() -> None:
        for _ in range(rounds):
            asked.at(steps[0])
            watch.time += 1.0
            steps[0] += 4

    return asked.outcome(run, lambda: steps[0])


def test_the_clock_leaves_evaluations_out() -> None:
    watch = Watch()
    found = train(criterion([1.0, 6.0, 7.0], watch), watch, 20)
    assert found == {"solved": True, "cpu": 5.0, "wall": 50.0, "steps": 20, "return": 6.0}
    assert watch.time == 8.0 + 3 * 100.0  # evaluated after 12, 20 and 32 steps


def test_one_good_evaluation_does_not_solve_a_task() -> None:
    watch = Watch()
    found = train(criterion([6.0, 1.0, 6.0, 1.0], watch), watch, 10)
    assert (found["solved"], found["cpu"], found["steps"], found["return"]) == (False, 10.0, 40, 1.0)


def test_the_end_of_the_budget_is_evaluated() -> None:
    watch = Watch()
    found = train(criterion([1.0, 6.0, 6.0], watch), watch, 6)
    assert (found["solved"], found["steps"]) == (True, 20)


def test_evaluations_wait_for_their_turn() -> None:
    asked = criterion([1.0, 6.0, 6.0], Watch())
    asked.at(9)
    assert np.isnan(asked.last)
    asked.at(10)
    asked.at(19)
    assert asked.last == 1.0
    asked.at(25)
    with pytest.raises(EndedError):
        asked.at(30)


def test_a_training_ends_at_its_limit() -> None:
    watch = Watch()
    found = train(criterion([1.0, 2.0, 3.0], watch, limit=5.5), watch, 20)
    assert (found["solved"], found["stopped"], found["cpu"], found["steps"]) == (False, True, 6.0, 24)
    assert found["return"] == 3.0  # evaluated after 12 and 20 steps, and when it was stopped
    watch = Watch()  # solved after 5 seconds; the second evaluation is later than the limit
    found = train(criterion([1.0, 6.0, 7.0], watch, limit=5.5), watch, 20)
    assert (found["solved"], found["cpu"]) == (True, 5.0)
    watch = Watch()
    found = train(criterion([1.0, 2.0, 3.0], watch, limit=100.0), watch, 4)
    assert (found["solved"], found["stopped"]) == (False, False)


def test_other_libraries_stop_at_a_multiple_of_our_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "DATA", tmp_path / "data.json")
    limits = []
    monkeypatch.setattr(solving, "run", lambda spec, interpreter: limits.append(spec.get("limit")) or outcome(4.0))
    quick, slow = (
        solving.Entry("Task", algorithm, 9, 10, f"lib.{algorithm.upper()}", 20, env="CartPole-v1")
        for algorithm in ("a2c", "ppo")
    )
    solving.measure([quick, slow], range(1), {"ours": "here", "peer": "here"}, stop_at=3.0)
    solving.measure([slow], range(1, 2), {"peer": "here"})
    assert limits == [None, 12.0, None, 12.0, None]
    assert quick.spec("peer", 0)["env"] == "CartPole-v1"
    other = solving.Entry("Task", "sac", 9, 10, "lib.SAC", 20, ours=False)
    assert other.sides() == ("peer", "sbx")


def test_trainings_with_two_threads_are_stored_and_shown_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "DATA", tmp_path / "data.json")
    specs = []
    monkeypatch.setattr(solving, "run", lambda spec, interpreter: specs.append(spec) or outcome(4.0))
    entry = next(entry for entry in solving.entries() if entry.name == "CartPole-v1/ppo")
    for threads in (1, 2):
        solving.measure([entry], range(1), {"ours": "here", "peer": "here"}, stop_at=3.0, threads=threads)
    assert [spec["threads"] for spec in specs] == [1, 1, 2, 2]
    assert [spec.get("limit") for spec in specs] == [None, 12.0, None, 3.0 * 8.0 * 2]
    found = solving.stored()
    found["CartPole-v1/ppo"]["peer, 2 threads"]["0"] |= {"solved": False, "wall": 30.0}
    first, second = [line for line in solving.table(found).splitlines() if line.startswith("| CartPole")]
    assert first.count("**4.0**") == 2
    assert second == "| CartPole-v1 | `ppo` -fast | **8.0** | 4.0 | 1,000 | not solved in 30.0 |  | 1, 1 |"


def test_every_environment_plays_one_episode() -> None:
    import gymnasium

    envs = [gymnasium.make("CartPole-v1") for _ in range(3)]

    def predict(observations: Any, state: Any, episode_start: Any, deterministic: bool) -> Any:
        assert deterministic
        assert state is None or not episode_start.any()
        return (observations[:, 2] + observations[:, 3] > 0).astype(int), "state"

    assert mean_return(predict, envs) > 100.0  # the policy pushes in the direction in which the pole falls
    assert mean_return(predict, envs) == mean_return(predict, envs)


def outcome(cpu: float, solved: bool = True, **more: Any) -> dict[str, Any]:
    shared = {"steps": 1000, "return": 500.0, "date": "2026-01-02", "versions": {"torch": "2.13.0"}}
    return {"solved": solved, "cpu": cpu, "wall": 2 * cpu, **shared, **more}


def test_a_row_by_hand() -> None:
    sides = {
        "ours": {"0": outcome(1.0), "1": outcome(3.0), "2": outcome(2.0)},
        "peer": {"0": outcome(9.0), "1": outcome(7.0, solved=False), "2": outcome(11.0)},
        "sbx": {"0": outcome(5.0, solved=False)},
    }
    text = solving.table({"CartPole-v1/a2c": sides, "CartPole-v1/ppo": {"ours": sides["ours"]}})
    fast, row = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| CartPole")
    ]
    assert fast == ["CartPole-v1", "`ppo` -fast", "**2.0** [1.0 .. 3.0]", "4.0", "1,000", *[""] * 5, "3", ""]
    assert row == [
        *("CartPole-v1", "`a2c`", "**2.0** [1.0 .. 3.0]", "4.0", "1,000"),
        *(
            "**11.0** [9.0 .. 11.0; 2 of 3 seeds]",
            "22.0",
            "1,000",
            "not solved (0 of 1 seeds) in 5.0",
            "",
            "3, 3, 1",
            "5.5x",
        ),
    ]
    assert len(row) == len(fast) == len(solving.COLUMNS)
    assert text.startswith("Measured 2026-01-02: torch 2.13.0\n")


def test_a_stopped_training_gives_a_lower_bound() -> None:
    stopped = {"0": outcome(6.0, solved=False, stopped=True)}
    sides = {"ours": {"0": outcome(2.0)}, "peer": stopped, "sbx": {"0": outcome(9.0, solved=False, stopped=True)}}
    assert solving.cells(stopped)[0] == "not solved (0 of 1 seeds) stopped after 6.0"
    assert solving.lead(sides["ours"], [sides]) == "over 3.0x"
    assert solving.lead(sides["ours"], [sides, {"peer": {"0": outcome(5.0)}}]) == "2.5x"
    assert solving.lead({}, [sides]) == ""
    results = {"A/ppo": sides, "A/sac": {"ours": {"0": outcome(1.0)}}, "AB/ppo": {"ours": {"0": outcome(0.5)}}}
    assert solving.fastest("A", results, ("ours",)) == 1.0
    assert solving.fastest("A", results, ("peer", "sbx")) == float("inf")


def test_a_task_is_compared_when_all_other_algorithms_were_measured() -> None:
    own = solving.Entry("A", "trpo", 9, 10, "lib.TRPO", 20)
    other = solving.Entry("A", "sac", 9, 10, "lib.SAC", 20, ours=False)
    alone = {"A/trpo": {"peer": {"0": outcome(5.0)}}, "A/sac": {"peer": {"0": outcome(4.0)}}}
    assert solving.rivals(own, [own, other], alone) == []
    both = {**alone, "A/sac": {**alone["A/sac"], "sbx": {"0": outcome(3.0)}}}
    assert solving.rivals(own, [own, other], both) == [both["A/trpo"], both["A/sac"]]
    assert solving.rivals(own, [own], alone) == [alone["A/trpo"]]


def test_results_are_stored_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "DATA", tmp_path / "data.json")
    asked = []
    monkeypatch.setattr(
        solving, "run", lambda spec, interpreter: asked.append((spec["side"], interpreter)) or outcome(1.0)
    )
    entry = solving.Entry("CartPole-v1", "ppo", 475, 10, "stable_baselines3.PPO", 20)
    for _ in range(2):  # the second call finds all results and measures nothing
        solving.measure([entry], range(2), {"ours": "here", "sbx": "there"})
    assert asked == [("ours", "here"), ("sbx", "there")] * 2
    assert set(json.loads((tmp_path / "data.json").read_text())["CartPole-v1/ppo"]["sbx"]) == {"0", "1"}


def test_every_entry_has_a_preset() -> None:
    known = solving.entries()
    assert len({entry.name for entry in known}) == len(known)
    for entry in known:
        assert not entry.ours or preset(entry.algorithm, entry.preset_name) is not None, entry.name
        assert entry.spec("peer", 3)["algorithm"] == entry.peer


def test_the_table_is_that_of_the_data() -> None:
    page = solving.PAGE.read_text(encoding="utf-8")
    expected = solving.replaced(page, solving.BEGIN, solving.END, solving.table(solving.stored()))
    assert page == expected, "run python -m benchmarks.solving --write"
