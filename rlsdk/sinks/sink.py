"""The protocol of metric sinks, and several of them as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class MetricSink(Protocol):
    """Takes metrics as they are logged; steps rise, names are those of docs/metrics.md.

    A sink may also have `hyperparameters(values)`, told once when training starts (setting -> text, number or truth
    value), `histograms(step, tensors)`, told when a callback asks for them, `media(step, values)`, which takes texts,
    histograms and the objects of `rlsdk.sinks.media` and returns the names of those it showed, and `format`, the name by
    which `Logger.record(exclude=)` leaves it out.
    """

    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Several:
    """Passes everything to each of its sinks."""

    def __init__(self, sinks: Sequence[MetricSink]) -> None:
        self.sinks = tuple(sinks)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for sink in self.sinks:
            sink.write(step, values)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()

    def hyperparameters(self, values: Mapping[str, Any]) -> None:
        for sink in self.sinks:
            tell_hyperparameters(sink, values)

    def histograms(self, step: int, tensors: Mapping[str, Any]) -> bool:
        drawn = [draw_histograms(sink, step, tensors) for sink in self.sinks]
        return True in drawn


def tell_hyperparameters(sink: MetricSink, values: Mapping[str, Any]) -> None:
    """Pass settings to a sink that takes them."""
    if (take := getattr(sink, "hyperparameters", None)) is not None:
        take(values)


def draw_histograms(sink: MetricSink, step: int, tensors: Mapping[str, Any]) -> bool:
    """Pass tensors to a sink that draws histograms; whether it does."""
    draw = getattr(sink, "histograms", None)
    return draw is not None and draw(step, tensors) is not False


def several(sinks: Sequence[MetricSink]) -> MetricSink:
    """One sink for many."""
    return sinks[0] if len(sinks) == 1 else Several(sinks)
