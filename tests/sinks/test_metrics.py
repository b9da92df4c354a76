"""The logged metrics are those that docs/metrics.md lists, and their rows in log files are complete."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import rlsdk
from rlsdk.callbacks import EvalCallback
from rlsdk.records import Report
from rlsdk.sinks import CsvSink, JsonlSink, Logger
from rlsdk.training.run import EpisodeStatistics
from rlsdk_envs.toy import ChainEnv, IdentityEnvBox, InvalidActionEnvDiscrete
from rlsdk_tqc import TQC

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
DOCUMENTED = {name for row in re.findall(r"^\|(.*?)\|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+/\w+)`", row)}


class Successful(ChainEnv):
    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return (*rest, {**info, "is_success": True})


def test_names_in_the_log_are_those_of_the_page(tmp_path: Path) -> None:
    model = TQC("MlpPolicy", Successful(5), buffer_size=300, learning_starts=20, batch_size=8, seed=0)
    rows: dict[str, float] = {}

    class Keep:
        def write(self, step: int, values: Any) -> None:
            rows.update(values)

        def close(self) -> None: ...

    model.set_logger(Logger(output_formats=[Keep(), CsvSink(tmp_path / "m.csv"), JsonlSink(tmp_path / "m.jsonl")]))
    model.learn(100, callback=EvalCallback(Successful(5), eval_freq=50))
    own = {"train/critic_loss", "train/actor_loss", "train/ent_coef", "train/ent_coef_loss"}
    assert set(rows) - own <= DOCUMENTED
    assert all(f"`{name.removeprefix('train/')}`" in PAGE for name in own)
    assert DOCUMENTED - {"rollout/worker_restarts", "rollout/lag", "rollout/exploration_rate"} <= set(rows)
    assert rows["rollout/success_rate"] == rows["eval/success_rate"] == 1.0
    assert set(rows) <= set((tmp_path / "m.csv").read_text().splitlines()[0].split(","))


def test_a_step_that_is_evaluated_too_has_one_row(tmp_path: Path) -> None:
    written: list[tuple[int, set[str]]] = []

    class Keep:
        def write(self, step: int, values: Any) -> None:
            written.append((step, set(values)))

        def close(self) -> None: ...

    table, lines = tmp_path / "m.csv", tmp_path / "m.jsonl"
    model = rlsdk.make("trpo", env="CartPole-v1", n_steps=32, batch_size=32, seed=0)
    model.set_logger(Logger(output_formats=[Keep(), CsvSink(table), JsonlSink(lines)]))
    model.learn(96, log_interval=1, callback=EvalCallback("CartPole-v1", eval_freq=64, n_eval_episodes=1))
    assert [step for step, _ in written] == [32, 64, 64, 96]
    assert written[2][1] == {"eval/mean_reward", "eval/std_reward", "eval/mean_ep_length"}, (
        "the others are known already"
    )
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    objects = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [int(row["step"]) for row in rows] == [each["step"] for each in objects] == [32, 64, 96]
    assert [bool(row["eval/mean_reward"]) for row in rows] == [False, True, False]
    assert all(row["train/value_loss"] and row["time/fps"] for row in rows)
    assert objects[1].keys() == written[1][1] | written[2][1] | {"step"}
    assert float(rows[1]["train/value_loss"]) == objects[1]["train/value_loss"]


def test_a_row_loses_no_value(tmp_path: Path) -> None:
    """A second value of a metric at one step starts a new row; so do values after a row that another writer added."""
    sink = CsvSink(tmp_path / "m.csv")
    sink.write(1, {"a": 1.0})
    sink.write(1, {"a": 2.0})
    sink.write(1, {"b": 3.0})
    CsvSink(tmp_path / "m.csv").write(1, {"a": 4.0})
    sink.write(1, {"b": 5.0})
    assert (tmp_path / "m.csv").read_text().split() == ["step,a,b", "1,1.0,", "1,2.0,3.0", "1,4.0,", "1,,5.0"]


OWN = re.findall(r"^\| ([\w, ]+) \| (.*`.*`.*) \|$", PAGE.partition("its own metrics")[2], re.MULTILINE)


@pytest.mark.parametrize(
    ("algorithm", "env", "settings"),
    [
        ("qrdqn", "CartPole-v1", {"learning_starts": 20, "buffer_size": 500}),
        ("maskable-ppo", InvalidActionEnvDiscrete(5, 2), {"n_steps": 32, "clip_range_vf": 0.2}),
        ("recurrent-ppo", "Pendulum-v1", {"n_steps": 32, "clip_range_vf": 0.2}),
        ("trpo", "Pendulum-v1", {"n_steps": 32}),
        ("ars", "CartPole-v1", {}),
    ],
)
def test_the_metrics_of_each_algorithm_are_listed(algorithm: str, env: Any, settings: dict[str, Any]) -> None:
    rows: dict[str, float] = {}

    class Keep:
        def write(self, step: int, values: Any) -> None:
            rows.update(values)

        def close(self) -> None: ...

    model = rlsdk.make(algorithm, env=env, seed=0, **settings)
    model.set_logger(Keep())
    model.learn(256, log_interval=1)
    (listed,) = [names for who, names in OWN if type(model).__name__ in who.split(", ")]
    expected = {f"train/{name}" for name in re.findall(r"`(\w+)`", listed)} - (
        {"train/std"} if algorithm == "maskable-ppo" else set()
    )
    assert {name for name in rows if name.startswith("train/")} == expected | {"train/n_updates", "train/learning_rate"}
    assert {name for name in rows if not name.startswith("train/")} <= DOCUMENTED
    assert ("rollout/exploration_rate" in rows) == (algorithm == "qrdqn")


def test_environments_without_success_log_none() -> None:
    model = TQC(
        "MlpPolicy", IdentityEnvBox(episode_length=5), buffer_size=300, learning_starts=20, batch_size=8, seed=0
    )
    rows: dict[str, float] = {}

    class Keep:
        def write(self, step: int, values: Any) -> None:
            rows.update(values)

        def close(self) -> None: ...

    model.set_logger(Keep())
    model.learn(60)
    assert "rollout/success_rate" not in rows


def test_logged_metrics_are_means_over_the_rounds_with_updates() -> None:
    statistics = EpisodeStatistics(10)
    rounds: list[dict[str, float] | None] = [{"a": 1.0}, None, {"a": 2.0, "a/b": 3.0}, {"a": 6.0, "a/b": 0.0}]
    for values in rounds:
        metrics = None if values is None else {name: torch.tensor(value) for name, value in values.items()}
        statistics.add(Report(0, 0, (), metrics), values or {})
    assert statistics.metrics() == {"a": 3.0, "a/b": 1.0}
    restored = EpisodeStatistics(10)
    restored.load_state_dict(statistics.state_dict())
    assert restored.metrics() == statistics.metrics()
    statistics.clear()
    assert statistics.metrics() == {}
