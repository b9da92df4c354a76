"""The protocol of metric sinks, and several of them as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class MetricSink(Protocol):
    """Takes metrics as they are logged; steps rise, names are those of docs/metrics.md."""

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


def several(sinks: Sequence[MetricSink]) -> MetricSink:
    """One sink for many."""
    return sinks[0] if len(sinks) == 1 else Several(sinks)
