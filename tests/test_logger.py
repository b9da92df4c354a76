"""The logger: values of the user's own, everywhere metrics go."""

from __future__ import annotations

import contextlib
import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.callbacks import BaseCallback, LogEveryNSteps
from rlsdk.environments.toy import ChainEnv
from rlsdk.errors import SettingsError
from rlsdk.sinks import (
    ConsoleSink,
    CSVOutputFormat,
    CsvSink,
    Figure,
    HParam,
    Image,
    JsonlSink,
    Logger,
    TensorBoardOutputFormat,
    configure,
    several,
)


def agent(**settings: Any) -> Any:
    return rlsdk.make(
        "trpo", env=ChainEnv(5), n_steps=8, batch_size=8, seed=0, policy_kwargs={"net_arch": [4]}, **settings
    )


class RecordingSink:
    """A sink that records what is written to it."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def write(self, step: int, values: Any) -> None:
        self.rows.append((step, dict(values)))

    def close(self) -> None: ...


def test_values_recorded_inside_and_outside_go_to_every_sink(tmp_path: Path) -> None:
    sink = RecordingSink()
    model = agent()
    model.set_logger(several([sink, CsvSink(str(tmp_path / "m.csv")), JsonlSink(tmp_path / "m.jsonl")]))
    model.logger.record("before/value", np.float32(1.5))

    class Mine(BaseCallback):
        def _on_step(self) -> bool:
            self.logger.record("my/value", torch.tensor(self.num_timesteps))
            self.logger.record_mean("my/mean", float(self.num_timesteps))
            self.logger.record_mean("my/mean", None)
            return True

    model.learn(16, callback=Mine())
    (first, one), (second, two) = sink.rows
    assert (first, second) == (8, 16)
    assert (one["before/value"], one["my/value"], one["my/mean"]) == (1.5, 8, 4.5)
    assert "before/value" not in two
    assert (two["my/value"], two["my/mean"]) == (16, 12.5)
    assert "rollout/ep_rew_mean" in two
    model.logger.record("after/value", 3)
    model.logger.dump()
    model.logger.dump()  # nothing is left
    assert sink.rows[2:] == [(16, {"after/value": 3})]
    with (tmp_path / "m.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["my/value"] for row in rows] == ["8", "16"]
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [line.get("after/value") for line in lines] == [None, 3]


def test_a_logger_by_names_of_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = agent()
    logger = configure(tmp_path / "logs", ["stdout", "csv", "json", "log"])
    model.set_logger(logger)
    assert model.logger is logger
    assert logger.dir == logger.get_dir() == str(tmp_path / "logs")
    logger.record("a/excluded", 1.0, exclude=("stdout", "csv"))
    logger.record("a/text", "hello")
    model.learn(8)
    out = capsys.readouterr().out
    assert "hello" in out
    assert "ep_rew_mean" in out
    assert "excluded" not in out
    assert "excluded" not in (tmp_path / "logs/progress.csv").read_text()
    assert "excluded" in (tmp_path / "logs/progress.json").read_text()
    assert "excluded" in (tmp_path / "logs/log.txt").read_text()
    assert any(isinstance(sink, CSVOutputFormat) for sink in logger.output_formats)
    logger.info("shown")
    logger.debug("not shown")
    logger.set_level(40)
    logger.warn("not shown")
    logger.error("also", "shown")  # noqa: PLE1205  # not the logging of the standard library
    assert capsys.readouterr().out == "shown\nalso shown\n"
    for wrong in (lambda: configure(None, ["csv"]), lambda: configure(tmp_path, ["xml"])):
        with pytest.raises(SettingsError):
            wrong()
    with pytest.raises(SettingsError, match="did you mean 'stdout'"):
        logger.record("x", 1, exclude="stdot")
    for key in ("step", "", 3):
        with pytest.raises(SettingsError, match="cannot be the name of a value"):
            logger.record(key, 1)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="is not a logger"):
        model.set_logger(print)
    assert isinstance(configure().sinks[0], ConsoleSink)


def test_there_is_a_logger_without_any_settings() -> None:
    model = agent()
    assert isinstance(model.logger, Logger)
    seen: list[Any] = []

    def note(scope: Any, _: Any) -> bool:
        logger = scope["self"].logger
        logger.record("my/value", 1.0)
        seen.append((logger.dir, dict(logger.name_to_value), scope["writer"]))
        return True

    model.learn(8, callback=note)
    assert seen[0] == (None, {"my/value": 1.0}, None)
    assert model.logger.name_to_value == {}


def test_logs_can_be_written_at_any_step() -> None:
    sink = RecordingSink()
    model = agent()
    model.set_logger(sink)
    model.learn(24, callback=LogEveryNSteps(3), log_interval=100)
    assert [step for step, _ in sink.rows] == [3, 6, 9, 12, 15, 18, 21, 24]
    assert "rollout/ep_rew_mean" in sink.rows[2][1]
    assert sink.rows[2][1]["time/total_timesteps"] == 9

    def dump(scope: Any, _: Any) -> None:
        if scope["self"].num_timesteps % 5 == 0:
            scope["self"].dump_logs(iteration=scope["self"].num_timesteps // 5)

    sink.rows.clear()
    model.learn(8, callback=dump, log_interval=100)
    assert [(step, row["time/iterations"]) for step, row in sink.rows] == [(5, 1)]
    model.logger.record("later", 1)
    model.dump_logs()
    assert sink.rows[-1] == (8, {"later": 1})


def test_media_go_to_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    plt = pytest.importorskip("matplotlib.pyplot")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = agent(tensorboard_log=str(tmp_path))
    writers: list[Any] = []

    class Pictures(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls == 2:
                writers.append(self.locals["writer"])
                self.logger.record(
                    "pic", Image(np.zeros((4, 4, 3), np.uint8)), exclude=("stdout", "csv", "json", "log")
                )
                self.logger.record("fig", Figure(plt.figure(figsize=(1, 1))))
                self.logger.record("hist", np.arange(5.0))
                self.logger.record("tensor", torch.arange(5.0))
                self.logger.record("text", "words")
                self.logger.record("hparams", HParam({"a": 1.0}, {"my/value": 0.0}))
                self.logger.record("my/value", 2.0)
                self.locals["writer"].add_scalar("direct", 1.0, self.num_timesteps)
            return True

    model.learn(8, callback=Pictures(), tb_log_name="run")
    folder = tmp_path / "run_1"
    assert model.logger.dir == str(folder)
    (board,) = [sink for sink in model.logger.output_formats if isinstance(sink, TensorBoardOutputFormat)]
    board.writer.add_text("by/hand", "words")
    model.logger.record("afterwards", 5.0)
    model.logger.dump()
    events = EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()
    assert {"pic", "fig"} <= set(tags["images"])
    assert {"hist", "tensor"} <= set(tags["histograms"])
    assert {"text/text_summary", "by/hand/text_summary"} <= set(tags["tensors"])
    assert {"my/value", "direct", "afterwards"} <= set(tags["scalars"])


def test_what_no_sink_shows_is_warned_of_once() -> None:
    logger = Logger(None, [RecordingSink()])
    for _ in range(2):
        logger.record("picture", Image(np.zeros((2, 2, 3))))
        logger.record("number", 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            logger.dump(1)
        if _ == 0:
            assert len(caught) == 1
            assert "no metric sink shows 'picture', a Image; set tensorboard_log" in str(caught[0].message)
        else:
            assert not caught
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger.record("other", Image(np.zeros((2, 2, 3))), exclude="csv")
        logger.dump(1)
        Logger().record("x", "y")


class Full:
    """A sink whose disk is full."""

    closed = False

    def write(self, step: int, values: Any) -> None:
        raise OSError("no space left on device")

    def close(self) -> None:
        raise OSError("no space left on device")


@pytest.mark.parametrize("together", [True, False])
def test_a_sink_that_fails_costs_one_warning_and_nobody_else(together: bool) -> None:
    sink, model = RecordingSink(), agent()
    closed: list[bool] = []
    sink.close = lambda: closed.append(True)  # type: ignore[method-assign]
    sinks = [Full(), sink]
    model.set_logger(several(sinks) if together else Logger(output_formats=sinks))
    warning = (
        r"metric sink Full raised OSError: no space left on device \(.*test_logger\.py, line \d+\); training continues"
    )
    with pytest.warns(UserWarning, match=warning) as warnings_:
        model.learn(24, log_interval=1)
    assert len([one for one in warnings_ if "Full" in str(one.message)]) == 1
    assert [step for step, _ in sink.rows] == [8, 16, 24]
    with warnings.catch_warnings(record=True) as more:
        model.logger.close()
    assert (closed, more) == ([True], [])
    alone = several([Full(), sink])
    with pytest.warns(UserWarning, match="Full"):
        alone.close()
    assert closed == [True, True]


def test_folders_of_metrics_are_made_or_refused(tmp_path: Path) -> None:
    for sink in (CsvSink(tmp_path / "a" / "m.csv"), JsonlSink(tmp_path / "b" / "m.jsonl")):
        sink.write(1, {"x": 1.0})
        assert sink.path.is_file()
    inside = tmp_path / "a" / "m.csv"
    agent = rlsdk.make("ppo", env="CartPole-v1", n_steps=32, batch_size=32, tensorboard_log=str(inside))
    attempts: list[Callable[[], object]] = [
        lambda: CsvSink(inside / "n.csv"),
        lambda: JsonlSink(inside / "n.jsonl"),
        lambda: configure(inside, ["csv"]),
        lambda: agent.learn(32),
    ]
    for attempt in attempts:
        with pytest.raises(
            SettingsError, match=r"metrics cannot be written into '\S+m\.csv': .*; choose another folder"
        ):
            attempt()


def test_metrics_are_not_added_to_another_table(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("my,table\n1,2\n")
    with pytest.raises(SettingsError, match=r"own\.csv holds another table, which begins with 'my', not with 'step'"):
        CsvSink(tmp_path / "own.csv")


def test_a_class_is_no_logger() -> None:
    with pytest.raises(SettingsError, match="is not a logger"):
        rlsdk.make("ppo", env="CartPole-v1").set_logger(CsvSink)  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csv_sink, json_sink = CsvSink(tmp_path / "m.csv"), JsonlSink(tmp_path / "m.jsonl")
    opened: Any = Path.open

    def half(self: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if mode != "ab":
            return opened(self, mode, *arguments, **named)
        with opened(self, "ab") as stream:
            stream.write(b'{"ste')
        return opened(Path("/dev/full"), "wb", buffering=0)

    for step in range(3):
        with monkeypatch.context() as patch:
            if step == 1:
                patch.setattr(Path, "open", half)
            for sink in (csv_sink, json_sink):
                with pytest.raises(OSError, match="No space left") if step == 1 else contextlib.nullcontext():
                    sink.write(step, {"x": 1.0})
    assert (tmp_path / "m.csv").read_text().split() == ["step,x", "0,1.0", "2,1.0"]
    assert [json.loads(line)["step"] for line in (tmp_path / "m.jsonl").read_text().splitlines()] == [0, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.csv", "m.jsonl"]
