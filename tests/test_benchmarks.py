"""The benchmark's own arithmetic; what it measures is never asserted."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

import benchmarks.__main__ as command
from benchmarks import floor
from benchmarks.cases import CASES
from benchmarks.compare import COLUMNS, Comparison
from benchmarks.trainers import Elsewhere, Timing, Trainer


def comparison(**changes: Any) -> Comparison:
    timings = {
        "ours": [Timing(200.0, 190.0, 0.5), Timing(300.0, 290.0, 0.7), Timing(240.0, 230.0, 0.6)],
        "theirs": [Timing(100.0, 90.0, 0.9), Timing(100.0, 90.0, 0.8), Timing(80.0, 70.0, 0.7)],
    }
    context = {
        "case": CASES["tqc-pendulum"],
        "threads": 1,
        "timings": timings,
        "floor": 480.0,
        "mib": {"ours": 1, "theirs": 2},
    }
    return Comparison(**{**context, **changes})


def test_a_row_of_the_table_by_hand() -> None:
    cells = [cell.strip() for cell in comparison().row().strip("|").split("|")]
    assert cells == [
        *("tqc-pendulum", "1", "240.0", "100.0", "**3.00x** [2.00 .. 3.00]", "", "480", "50%", "60%", "80%", "1", "2"),
    ]
    assert len(cells) == len(COLUMNS)


def test_cases_with_workers_go_by_the_clock() -> None:
    row = comparison(case=CASES["ars-halfcheetah-2-workers"], floor=None).row()
    assert "230.0 | 90.0" in row
    assert "**3.22x** [2.11 .. 3.29]; **3.00x** [2.00 .. 3.00] of all processes' processor time" in row
    assert "50%" not in row


def test_updates_are_timed_where_they_happen() -> None:
    class Model:
        def train(self) -> int:
            return sum(range(300_000))

    model = Model()
    trainer = Trainer(lambda steps: [model.train() for _ in range(steps)], model, "train")
    timing = trainer(20)
    assert timing.update is not None
    assert 0.5 < timing.update <= 1.0
    assert Trainer(lambda steps: sum(range(100_000)), model, "no_such_method")(1).update is None


@pytest.mark.kernels("the floor is that of the quickest products")
@pytest.mark.parametrize(
    "name", ["tqc-pendulum", "trpo-pendulum", "maskable-ppo-toy-8", "qrdqn-cartpole", "ars-pendulum"]
)
def test_every_algorithm_has_a_floor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "SECONDS", 1e-4)
    monkeypatch.setattr(floor, "BLOCKS", 1)
    assert 0.0 < floor.floor(CASES[name]) < 1e6


def test_sizes_can_be_given() -> None:
    asked = argparse.Namespace(chunk=5, n_envs=3, set=["policy_kwargs.n_quantiles=7", "batch_size=9"])
    case = command._resized(CASES["qrdqn-cartpole"], asked)
    assert (case.chunk, case.n_envs, case.settings["batch_size"]) == (5, 3, 9)
    assert case.settings["policy_kwargs"] == {"net_arch": [256, 256], "n_quantiles": 7}


def made() -> Trainer:
    return Trainer(lambda steps: sum(range(steps * 1000)), object(), "none")


def test_a_trainer_in_a_process_of_its_own() -> None:
    side = Elsewhere(made)
    timing = side(500)
    side.close()
    assert timing.cpu > 0.0
    assert timing.update is None
    assert not side.process.is_alive()


def test_collecting_is_measured_with_networks_and_without() -> None:
    pytest.importorskip("sb3_contrib")
    from benchmarks.collection import measure, measure_acting

    for row in (measure("CartPole-v1", 1, 2, 1), measure_acting("CartPole-v1", 1, 2, 1)):
        name, count, *figures = (cell.strip() for cell in row.strip("|").split("|"))
        assert (name, count, len(figures)) == ("CartPole-v1", "2", 3)
        assert all(float(figure.strip("*").split()[0].rstrip("x*")) > 0.0 for figure in figures)
