"""The logger: values that users record go wherever metrics go."""

from __future__ import annotations

import csv
import json
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.errors import SettingsError
from rlsdk.sinks import ConsoleSink, CsvSink, Figure, HParam, Image, JsonlSink, Logger, Sink, Video
from rlsdk_envs.toy import ChainEnv
from rlsdk_sb3 import BaseCallback, CSVOutputFormat, LogEveryNTimesteps, TensorBoardOutputFormat, configure


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
    model.set_logger(Logger(output_formats=[sink, CsvSink(str(tmp_path / "m.csv")), JsonlSink(tmp_path / "m.jsonl")]))
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
    model.logger.dump()  # nothing is left to write
    assert sink.rows[2:] == [(16, {"after/value": 3})]
    with (tmp_path / "m.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["my/value"] for row in rows] == ["8", "16"]
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [line.get("after/value") for line in lines] == [None, 3]


def test_a_logger_by_names_of_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = agent()
    logger: Any = configure(tmp_path / "logs", ["stdout", "csv", "json", "log"])
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
            logger.record(key, 1)
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
    model.learn(24, callback=LogEveryNTimesteps(3), log_interval=100)
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
    logger: Any = model.logger
    assert logger.dir == str(folder)
    (board,) = [sink for sink in logger.output_formats if isinstance(sink, TensorBoardOutputFormat)]
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
            assert "no logger (RecordingSink) shows 'picture' (Image); left out; set tensorboard_log" in str(
                caught[0].message
            )
        else:
            assert not caught
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger.record("other", Image(np.zeros((2, 2, 3))), exclude="csv")
        logger.dump(1)
        Logger().record("x", "y")


def test_lists_tables_and_other_kinds_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = configure(tmp_path, ["stdout", "csv", "json"])
    recorded: dict[str, tuple[object, object]] = {
        "list": ([1, 2.5, float("nan")], [1.0, 2.5, None]),
        "nested": (((1, 2), [3, 4]), [[1, 2], [3, 4]]),
        "tensors": ([torch.tensor(1.0), np.float32(2.0)], [1.0, 2.0]),
        "half": (torch.zeros(2, dtype=torch.bfloat16), [0.0, 0.0]),
        "ragged": ([[1], [2, 3]], "[[1], [2, 3]]"),
        "mixed": ([1, "a", None, Path("p")], '[1, "a", null, "p"]'),
        "words": (np.array(["a", "b"]), '["a", "b"]'),
        "empty": (np.zeros(0), "[]"),
        "path": (Path("a/b"), "a/b"),
        "huge": (10**400, str(10**400)),
        "half_of": (Fraction(1, 2), 0.5),
        "lines": ("a\nb\u2028c", "a\nb\u2028c"),
        "none": (None, None),
    }
    for name, (value, _) in recorded.items():
        logger.record(name, value)
    logger.record("table", {"a": 1, "deeper": {"b": 2.0, "c": [1, 2]}, 3: "d"}, exclude="stdout")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger.dump(7)
    row = json.loads((tmp_path / "progress.json").read_text())
    table = {"table/a": 1, "table/deeper/b": 2.0, "table/deeper/c": [1, 2], "table/3": "d"}
    assert row == {"step": 7, **{name: stored for name, (_, stored) in recorded.items()}, **table}
    lines = (tmp_path / "progress.csv").read_text().splitlines()
    (cells,) = csv.DictReader(lines)
    assert len(lines) == 2, "every row is one line, which resuming relies on"
    assert (cells["list"], cells["none"], cells["lines"]) == ("[1.0, 2.5, null]", "", r"a\nb\u2028c")
    assert (cells["table/deeper/c"], cells["half_of"]) == ("[1, 2]", "0.5")
    printed = capsys.readouterr().out
    assert "[1.0, 2.5, null]" in printed
    assert "deeper" not in printed
    assert all(len(line) < 120 for line in printed.splitlines())


def test_every_value_that_no_sink_shows_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    endless: list[object] = []
    endless.append(endless)
    round_: dict[str, object] = {}
    round_["x"] = round_
    logger = configure(tmp_path, ["csv", "tensorboard"])
    for name, value in {"b": b"x", "a": object(), "endless": endless, "round": round_, "large": "x" * 200_000}.items():
        logger.record(name, value)
    with pytest.warns(UserWarning, match="no logger") as caught:
        logger.dump(1)
    # another test may have left an object whose end warns, too
    (message,) = (text for text in (str(one.message) for one in caught) if "no logger" in text)
    assert "'a' (object), 'b' (bytes), 'endless' (list), 'round/" in message
    assert message.endswith("left out; record numbers, texts, lists, arrays or the objects of rlsdk.sinks")
    assert "tensorboard_log" not in message, "TensorBoard is on"
    logger.record("large", np.zeros(5000))
    csv_alone = Logger(None, [CsvSink(tmp_path / "alone.csv")])
    csv_alone.record("large", np.zeros(5000))
    csv_alone.record("x", b"")
    with pytest.warns(
        UserWarning, match=r"'large' \(ndarray\), 'x' \(bytes\); left out; set tensorboard_log.*; record num"
    ):
        csv_alone.dump(1)
    with pytest.raises(SettingsError, match="there is a mean of numbers only; use record"):
        logger.record_mean("mean", "text")  # type: ignore[arg-type]


def test_a_picture_that_cannot_be_drawn_costs_no_other_value(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = configure(tmp_path, ["tensorboard"])
    frames = np.zeros((2, 3, 1, 4, 6), np.uint8)
    for name, value in {
        "a/bad": Image(np.zeros(4)),
        "b/bad": Video(np.zeros((2, 2))),
        "c": [1, 2, 3],
        "d": Image(np.zeros((2, 2, 3))),
        "video": Video(frames),
        "moving": Video(torch.rand(1, 2, 3, 4, 4)),
    }.items():
        logger.record(name, value)
    with pytest.warns(UserWarning, match="/bad") as caught:
        logger.dump(1)
    assert len(caught) == 2
    logger.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["images"]) == {"d", "video", "moving"}
    assert events.Tags()["histograms"] == ["c"]
    picture = events.Images("video")[0]
    assert (picture.height, picture.width) == (4, 12)
    pixels = pytest.importorskip("imageio.v3").imread(picture.encoded_image_string)
    assert pixels.shape[1:3] == (4, 12)


@pytest.mark.parametrize("name", ["x[16, 16]", "a/b*", "?", "%d{}", "q²"])
def test_a_run_name_may_hold_any_characters(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    sinks = [TensorBoardOutputFormat(tmp_path, name) for _ in range(2)]
    other = TensorBoardOutputFormat(tmp_path, f"{name}_1")
    again = TensorBoardOutputFormat(tmp_path, name, continue_last=True)
    for sink in (*sinks, other, again):
        sink.close()
    assert [sink.path.name.removeprefix(Path(name).name) for sink in (*sinks, other, again)] == [
        "_1",
        "_2",
        "_1_1",
        "_2",
    ]


def test_a_run_name_that_no_folder_can_have_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for name in ("a\0b", "a" * 300):
        with pytest.raises(SettingsError, match="metrics cannot be written into"):
            TensorBoardOutputFormat(tmp_path, name)


class Full:
    """A sink whose disk is full."""

    closed = False

    def write(self, step: int, values: Any) -> None:
        raise OSError("no space left on device")

    def close(self) -> None:
        raise OSError("no space left on device")


def test_a_sink_that_fails_costs_one_warning_and_nobody_else() -> None:
    sink, model = RecordingSink(), agent()
    closed: list[bool] = []
    sink.close = lambda: closed.append(True)  # type: ignore[method-assign]
    sinks: list[Any] = [Full(), sink]
    model.set_logger(Logger(output_formats=sinks))
    message = (
        r"the logger Full raised OSError: no space left on device \(.*test_logger\.py, line \d+\); training continues"
    )
    with pytest.warns(UserWarning, match=message) as warnings_:
        model.learn(24, log_interval=1)
    assert len([one for one in warnings_ if "Full" in str(one.message)]) == 1
    assert [step for step, _ in sink.rows] == [8, 16, 24]
    with warnings.catch_warnings(record=True) as more:
        model.logger.close()
    assert (closed, more) == ([True], [])
    alone = Logger(output_formats=[Full(), sink])
    with pytest.warns(UserWarning, match="Full"):
        alone.close()
    assert closed == [True, True]


def test_a_sink_may_leave_out_every_method() -> None:
    """A class that derives from `Sink`, and any object with `write` and `close`, need no other method."""
    logger = Logger(output_formats=[Sink(), RecordingSink()])
    logger.begin_run({"env": "CartPole-v1"})
    logger.hyperparameters({"gamma": 0.9})
    logger.record("a", 1)
    logger.dump(3)
    logger.take_files([])
    assert not logger.histograms(3, {"weight": [1.0]})
    logger.record("picture", Image([[0.0]], "HW"))
    with pytest.warns(UserWarning, match=r"no logger \(Sink, RecordingSink\) shows 'picture'"):
        logger.dump(4)
    logger.close()


def test_files_that_a_sink_cannot_store_are_warned_of_after_its_metrics() -> None:
    class Unreachable(Full):
        def take_files(self, paths: Any) -> None:
            raise OSError("no route to host")

    logger = Logger(output_formats=[Unreachable()])
    logger.record("a", 1)
    with pytest.warns(UserWarning, match="no space left"):
        logger.dump(1)
    with pytest.warns(UserWarning, match="no route to host"):
        logger.take_files([])
