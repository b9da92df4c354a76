"""Loggers of stable-baselines3: `configure`, its names of sinks, and the members that only its loggers have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rlsdk.errors import SettingsError, suggest
from rlsdk.runtime import print_line
from rlsdk.sinks import ConsoleSink, CsvSink, JsonlSink, Logger, MetricSink, TensorBoardSink, writable_folder

FORMATS = ("stdout", "log", "csv", "json", "tensorboard")
CSVOutputFormat, HumanOutputFormat, JSONOutputFormat = CsvSink, ConsoleSink, JsonlSink
TensorBoardOutputFormat = TensorBoardSink


def configure(folder: str | Path | None = None, format_strings: Sequence[str] | None = None) -> Logger:
    """Return a logger for `model.set_logger`.

    Args:
        folder: the folder for progress.csv, progress.json, log.txt and the event files of TensorBoard. It is created if it
            does not exist. Without a folder only the format "stdout" is possible.
        format_strings: any of stdout, log, csv, json, tensorboard. Default: stdout without a folder; stdout, log and csv
            with one.

    Raises:
        SettingsError: a format is unknown, a format needs a folder but `folder` is None, the folder cannot be created, or
            tensorboard is not installed.
    """
    default = ("stdout",) if folder is None else ("stdout", "log", "csv")
    formats = default if format_strings is None else tuple(format_strings)
    for name in formats:
        if name not in FORMATS:
            raise SettingsError(f"unknown log format {name!r}; {suggest(name, FORMATS)}")
        if folder is None and name != "stdout":
            raise SettingsError(
                f"the log format {name!r} writes files and needs a folder: configure(folder, [{name!r}])"
            )
    place = None if folder is None else writable_folder(Path(folder))
    return Logger(None if place is None else str(place), [_sink(name, place) for name in formats])


def _sink(name: str, folder: Path | None) -> MetricSink:
    if folder is None or name == "stdout":
        return ConsoleSink()
    if name == "log":
        return ConsoleSink((folder / "log.txt").open("a", encoding="utf-8"), format="log")
    if name == "csv":
        return CsvSink(folder / "progress.csv")
    return JsonlSink(folder / "progress.json") if name == "json" else TensorBoardSink.in_folder(folder)


DEBUG, INFO, WARN, ERROR = 10, 20, 30, 40


def _print(logger: Logger, *args: object, level: int = INFO) -> None:
    """Print a message, unless `level` is below the level of the logger."""
    if vars(logger).get("level", INFO) <= level:
        print_line(" ".join(map(str, args)))


def writer_of(logger: Logger) -> Any:
    """The `SummaryWriter` of the TensorBoard sink, None without one."""
    return next((sink.writer for sink in logger.sinks if hasattr(sink, "writer")), None)


def _folder_of(logger: Logger) -> str | None:
    """The folder of a logger, else the folder of its TensorBoard sink; None without either."""
    boards = (str(sink.path) for sink in logger.sinks if isinstance(sink, TensorBoardSink))
    return logger.folder or next(boards, None)


MEMBERS: Mapping[str, Callable[[Logger], object]] = {
    "debug": lambda logger: partial(_print, logger, level=DEBUG),
    "dir": _folder_of,
    "error": lambda logger: partial(_print, logger, level=ERROR),
    "get_dir": lambda logger: partial(_folder_of, logger),
    "info": lambda logger: partial(_print, logger, level=INFO),
    "level": lambda logger: INFO,
    "log": lambda logger: partial(_print, logger),
    "output_formats": lambda logger: list(logger.sinks),
    "set_level": lambda logger: partial(setattr, logger, "level"),
    "warn": lambda logger: partial(_print, logger, level=WARN),
    "writer": writer_of,
}
"""Member of the loggers of stable-baselines3 -> function of a logger of rlsdk that gives its value."""
