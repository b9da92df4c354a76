"""The output of a trial of a search: metrics for sinks, and progress for the log of its worker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO, cast

from rlsdk.callbacks import ProgressBar
from rlsdk.errors import RlsdkError
from rlsdk.runs import named_sinks
from rlsdk.sinks import Logger, MetricSink


class SinkRefused(Exception):  # noqa: N818  # named after the event
    """A sink could not begin. This ends the search, unlike an error of a trial."""


def worker_folder(out: Path, worker: int) -> Path:
    """Return the folder with the log of a worker."""
    return out / f"worker-{worker}"


@contextlib.contextmanager
def trial_sinks(names: Sequence[str], folder: Path, details: Mapping[str, str | int]) -> Iterator[list[MetricSink]]:
    """Yield the sinks of a trial, and close them after the block.

    Raises:
        SinkRefused: a sink cannot begin.
    """
    sinks: list[MetricSink] = []
    try:
        try:
            for make in named_sinks(names):
                folder.mkdir(parents=True, exist_ok=True)
                sinks.append(make(folder, False))
            Logger(output_formats=sinks).begin_run(details)
        except (RlsdkError, OSError) as error:
            raise SinkRefused(str(error)) from error
        yield sinks
    finally:
        Logger(output_formats=sinks).close()


@contextlib.contextmanager
def trial_progress(out: Path, worker: int, trial: int) -> Iterator[ProgressBar]:
    """Yield a progress bar that writes to the log of the worker. `watching` reads this log."""
    folder = worker_folder(out, worker)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "log.txt", "a", encoding="utf-8") as log:
        yield ProgressBar(cast("TextIO", _Named(log, f"trial {trial}: ")))


class _Named:
    """A text stream that puts a name before every line."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream, self.name = stream, name

    def write(self, text: str) -> int:
        return self.stream.write(text if text == "\n" else self.name + text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return False
