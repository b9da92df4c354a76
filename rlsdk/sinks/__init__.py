"""Outputs for metrics. A sink derives from `Sink`, or is an object with `write(step, values)` and `close()`."""

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.sinks.files import ConsoleSink, CsvSink, JsonlSink, TensorBoardSink
from rlsdk.sinks.logger import Logger, configure
from rlsdk.sinks.sink import Figure, HParam, Image, MetricSink, Sink, Video

CSVOutputFormat, HumanOutputFormat, JSONOutputFormat = CsvSink, ConsoleSink, JsonlSink
TensorBoardOutputFormat = TensorBoardSink
"""The names under which stable-baselines3 documents these sinks."""

__all__ = [
    "CSVOutputFormat",
    "ConsoleSink",
    "CsvSink",
    "Figure",
    "HParam",
    "HumanOutputFormat",
    "Image",
    "JSONOutputFormat",
    "JsonlSink",
    "Logger",
    "MetricSink",
    "Sink",
    "TensorBoardOutputFormat",
    "TensorBoardSink",
    "Video",
    "configure",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
