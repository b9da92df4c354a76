"""Outputs for metrics. A sink derives from `Sink`, or is an object with `write(step, values)` and `close()`."""

from typing import TYPE_CHECKING

from rlsdk.runtime.documented_names import names_elsewhere
from rlsdk.sinks.configure import configure
from rlsdk.sinks.console import ConsoleSink
from rlsdk.sinks.csv_file import CsvSink
from rlsdk.sinks.jsonl_file import JsonlSink
from rlsdk.sinks.logger import Logger
from rlsdk.sinks.media import Figure, HParam, Image, Video
from rlsdk.sinks.sink import MetricSink, Sink
from rlsdk.sinks.tensorboard import TensorBoardSink

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
