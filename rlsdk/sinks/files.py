"""Sinks that write files: tables, CSV, JSON lines and TensorBoard."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from torch import Tensor

from rlsdk.errors import SettingsError, one_line, shown
from rlsdk.runtime.files import append_whole, write_whole
from rlsdk.runtime.output import print_line
from rlsdk.runtime.packages import pip_install
from rlsdk.sinks.sink import Figure, HParam, Image, Sink, Video, in_words, listed, unwritable, writable_folder

WIDEST = 80
"""Characters of a text in a table."""


class ConsoleSink(Sink):
    """Prints the metrics of each call of `write` as one table, grouped by the part of the name before the last slash."""

    def __init__(self, stream: TextIO | None = None, *, format: str = "stdout") -> None:  # noqa: A002  # the documented word
        self.stream, self.format = stream or sys.stdout, format

    def write(self, step: int, values: Mapping[str, object]) -> None:
        if not values:
            return
        rows: list[tuple[str, str]] = []
        group = ""
        for name in sorted(values):
            head, _, tail = name.rpartition("/")
            if head != group:
                rows.append((f"{head}/", ""))
                group = head
            rows.append(
                (
                    f"   {one_line(tail)}",
                    f"{values[name]:.4g}" if isinstance(values[name], float) else str(values[name]),
                )
            )
        left, right = max(len(r[0]) for r in rows), max(len(r[1]) for r in rows)
        line = "-" * (left + right + 7)
        body = "\n".join(f"| {name:<{left}} | {value:<{right}} |" for name, value in rows)
        print_line(f"{line}\n{body}\n{line}", self.stream)

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Print the texts, Nones and arrays of at most 1,000 entries, each on one line, and return their names."""
        known = {name: value if isinstance(value, str) else in_words(value) for name, value in values.items()}
        texts = {name: one_line(value, WIDEST) for name, value in known.items() if value is not None}
        if texts:
            self.write(step, texts)
        return list(texts)

    def close(self) -> None:
        """Close the stream if it is a log file. The caller closes any other stream."""
        if self.format == "log":
            self.stream.close()


MOST_TEXT = 100_000
"""Characters of a cell. Python's csv module refuses to read cells with more than 131,072."""


class CsvSink(Sink):
    """Appends rows to the file `path`. A metric that appears later gets a new column, which is empty in earlier rows.

    Metrics that are logged later for the same step, such as those of an evaluation, go into the row of that step.
    """

    format = "csv"

    def __init__(self, path: str | Path) -> None:
        """Makes the folder if need be; raises SettingsError where that is not possible, or `path` is another table."""
        self.path = writable_folder(Path(path).parent) / Path(path).name
        self.columns: list[str] = []
        self._last = LastLine(self.path)
        if self.path.exists():
            self.columns = _columns(self.path)

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Write the texts, Nones (empty cells) and arrays of at most 1,000 entries (as JSON), and return their names."""
        texts = {name: text for name, value in values.items() if (text := in_words(value)) is not None}
        short = {name: text for name, text in texts.items() if len(text) <= MOST_TEXT}
        if short:
            self.write(step, short)
        return list(short)

    def write(self, step: int, values: Mapping[str, object]) -> None:
        row = {"step": step, **self._last.merge(step, values)}
        if new := [name for name in row if name not in self.columns]:
            self._add(new)
        line = io.StringIO()
        csv.DictWriter(line, self.columns).writerow(row)
        self._last.write(line.getvalue())

    def _add(self, new: list[str]) -> None:
        """Replace the file by one that also has the columns `new`. The replacement is atomic."""
        rows: list[dict[str, str]] = []
        if self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as stream:
                rows = list(csv.DictReader(stream))
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, [*self.columns, *new], restval="")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.path, table.getvalue().encode())
        self.columns += new


def _columns(path: Path) -> list[str]:
    """Return the column names from the first line of the file, after checking that every row fits them.

    Raises:
        SettingsError: the file cannot be read, two columns have the same name, or a row has too many cells.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
    except (OSError, ValueError, csv.Error) as error:
        raise SettingsError(f"{path} is damaged: {error}; move it away to log into a new one") from None
    columns = rows[0] if rows else []
    if columns and columns[0] != "step":
        raise SettingsError(
            f"{path} holds another table, which begins with {shown(columns[0], 50)}, not with 'step'; choose another file"
        )
    if len(set(columns)) < len(columns) or any(len(row) > len(columns) for row in rows):
        raise SettingsError(
            f"{path} is damaged: its rows do not fit its first line; move it away to log into a new one"
        )
    return columns


class JsonlSink(Sink):
    """Appends one JSON object per step to the file `path`. NaN and infinity become null: JSON cannot represent them."""

    format = "json"

    def __init__(self, path: str | Path) -> None:
        """Makes the folder if need be; raises SettingsError where that is not possible."""
        self.path = writable_folder(Path(path).parent) / Path(path).name
        self._last = LastLine(self.path)

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Write the texts, Nones and arrays of at most 1,000 entries, and return their names."""
        known = {name: value if isinstance(value, str) else listed(value) for name, value in values.items()}
        plain = {name: value for name, value in known.items() if value is not None or values[name] is None}
        if plain:
            self.write(step, plain)
        return list(plain)

    def write(self, step: int, values: Mapping[str, object]) -> None:
        finite = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in values.items()}
        row = {"step": step, **self._last.merge(step, finite)}
        self._last.write(json.dumps(row, allow_nan=False) + "\n")


class LastLine:
    """Appends lines to a file and merges metrics of the same step into one line.

    If a name would get a second value in that line, a new line is started. Lines that another object wrote stay unchanged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step, self.values = -1, dict[str, object]()
        self.start = self.end = -1
        """The offsets in the file, in bytes, at which the last line begins and ends; -1 before the first line."""

    def merge(self, step: int, values: Mapping[str, object]) -> dict[str, object]:
        """Return the values of the next line, which the caller passes to `write` as text.

        If the last line can be merged (see the class), its values are included, and it is removed from the file.
        """
        whole = self.path.exists() and self.path.stat().st_size == self.end
        if step == self.step and whole and not self.values.keys() & values.keys():
            with self.path.open("r+b") as stream:
                stream.truncate(self.start)
            values = {**self.values, **values}
        self.step, self.values = step, dict(values)
        return self.values

    def write(self, line: str) -> None:
        """Append `line`, which includes its line break, to the file.

        Raises:
            OSError: it cannot be written, for example because the disk is full. No part of it remains in the file.
        """
        data = line.encode()
        append_whole(self.path, data)
        self.end = self.path.stat().st_size
        self.start = self.end - len(data)


class TensorBoardSink(Sink):
    """Writes metrics, settings and media to `folder/name_1`, `folder/name_2`, ...: each run uses the next free number.

    With `continue_last` it writes to the existing folder with the highest number.
    """

    format = "tensorboard"

    def __init__(self, folder: Path, name: str, *, continue_last: bool = False) -> None:
        """Raises SettingsError if the tensorboard package is not installed or `folder` contains a null character."""
        if "\0" in str(folder):
            raise SettingsError(f"tensorboard_log = {str(folder)!r} names no folder")
        writable_folder(folder)
        last = max(_numbers(folder / f"{name}_"), default=0)
        self.path = folder / f"{name}_{last if continue_last and last else last + 1}"
        self._writer: Any = _summary_writer(self.path)

    @classmethod
    def in_folder(cls, folder: Path) -> TensorBoardSink:
        """Return a sink that writes into `folder` itself, not into a numbered folder in it."""
        sink = cls.__new__(cls)
        sink.path, sink._writer = folder, _summary_writer(folder)
        return sink

    @property
    def writer(self) -> Any:
        """The `SummaryWriter` of torch. If it was closed, a new one is opened."""
        if self._writer is None:
            self._writer = _summary_writer(self.path)
        return self._writer

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def hyperparameters(self, values: Mapping[str, object]) -> None:
        """Show the settings in TensorBoard's tab of hyper-parameters, next to the mean return of the episodes."""
        self._hparams(values, {"rollout/ep_rew_mean": 0.0})

    def _hparams(self, settings: Mapping[str, object], metrics: Mapping[str, float]) -> None:
        from torch.utils.tensorboard.summary import hparams

        make: Any = hparams
        for summary in make(dict(settings), dict(metrics)):
            self.writer.file_writer.add_summary(summary)  # `add_hparams` would create another run

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Show texts, pictures, figures, videos, hyper-parameters and histograms; return the names of the values shown."""
        return [name for name, value in values.items() if self._show(name, value, step)]

    def _show(self, name: str, value: object, step: int) -> bool:
        if isinstance(value, str):
            self.writer.add_text(name, value, step)
        elif isinstance(value, Image):
            self.writer.add_image(name, value.image, step, dataformats=value.dataformats)
        elif isinstance(value, Figure):
            self.writer.add_figure(name, value.figure, step, close=value.close)
        elif isinstance(value, Video):
            self._show_video(name, value, step)
        elif isinstance(value, HParam):
            self._hparams(value.hparam_dict, value.metric_dict)
        elif hasattr(value, "shape"):
            self.writer.add_histogram(name, value, step)
        else:
            return False
        return True

    def _show_video(self, name: str, video: Video, step: int) -> None:
        """Write the videos side by side as one animated picture. (`add_video` of torch needs an old moviepy, and without it
        prints a line and writes nothing.)

        Raises:
            SettingsError: imageio is missing, or the array does not hold videos.
        """
        try:
            import imageio.v3
        except ImportError:
            raise SettingsError(f"videos in TensorBoard need imageio: {pip_install('rlsdk[video]')}") from None
        summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary

        given: Any = video.frames
        frames = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
        if frames.ndim != 5 or frames.shape[2] not in (1, 3) or not frames.size:
            raise SettingsError(f"a video needs frames [N, T, C, H, W] with 1 or 3 channels, not {frames.shape}")
        if frames.dtype != np.uint8:
            frames = (np.clip(frames.astype(np.float64), 0.0, 1.0) * 255.0).astype(np.uint8)
        count, length, channels, height, width = frames.shape
        joined = frames.transpose(1, 3, 0, 4, 2).reshape(length, height, count * width, channels)
        joined = np.broadcast_to(joined, (*joined.shape[:3], 3))
        data = imageio.v3.imwrite("<bytes>", joined, extension=".gif", duration=1000.0 / video.fps, loop=0)
        picture = summary.Image(height=height, width=count * width, colorspace=3, encoded_image_string=data)
        self.writer.file_writer.add_summary(summary(value=[summary.Value(tag=name, image=picture)]), step)

    def histograms(self, step: int, tensors: Mapping[str, object]) -> None:
        """Write one histogram per tensor [..], under `parameters/NAME`."""
        for name, tensor in tensors.items():
            self.writer.add_histogram(f"parameters/{name}", tensor, step)

    def flush(self) -> None:
        """Write buffered values to disk."""
        self.writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _numbers(beginning: Path) -> list[int]:
    """The numbers of the folders whose paths are `beginning` and a number. A name may hold any characters, such as `[16]`."""
    parent, prefix = beginning.parent, beginning.name
    names = [path.name for path in parent.iterdir()] if parent.is_dir() else []
    tails = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return [int(tail) for tail in tails if tail.isascii() and tail.isdecimal()]


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SettingsError(
            f"tensorboard_log needs the tensorboard package: {pip_install('rlsdk[tensorboard]')}"
        ) from None
    try:
        return SummaryWriter(str(folder))
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from None
