"""Outputs for metrics. A sink derives from `Sink`, or is an object with `write(step, values)` and `close()`."""

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.sinks.files import ConsoleSink, CsvSink, JsonlSink, TensorBoardSink
from rlsdk.sinks.logger import Logger
from rlsdk.sinks.sink import Figure, HParam, Image, MetricSink, Sink, Video, writable_folder

__all__ = [
    "ConsoleSink",
    "CsvSink",
    "Figure",
    "HParam",
    "Image",
    "JsonlSink",
    "Logger",
    "MetricSink",
    "Sink",
    "TensorBoardSink",
    "Video",
    "writable_folder",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
