"""The protocol of metric sinks, and several of them as one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlsdk.errors import RlsdkError, SettingsError, one_line, raised

Scalar = bool | int | float | str | None
"""A setting, as sinks show it."""


@runtime_checkable
class MetricSink(Protocol):
    """Takes metrics as they are logged; steps rise, names are those of docs/metrics.md.

    A sink may have more: `BeginsRuns`, `TakesHyperparameters`, `DrawsHistograms`, `ShowsMedia`, `TakesFiles`, `Flushes`, and
    `format`, the name by which `Logger.record(exclude=)` leaves it out.
    """

    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class TakesHyperparameters(Protocol):
    """A sink that shows settings."""

    def hyperparameters(self, values: Mapping[str, Scalar]) -> None:
        """Called once when training starts."""
        ...


@runtime_checkable
class DrawsHistograms(Protocol):
    """A sink that draws histograms."""

    def histograms(self, step: int, tensors: Mapping[str, object]) -> object:
        """Called when a callback logs histograms of tensors [..]. False: nothing was drawn."""
        ...


@runtime_checkable
class ShowsMedia(Protocol):
    """A sink that shows texts, tensors with several entries, or the objects of `rlsdk.sinks.media`."""

    def media(self, step: int, values: Mapping[str, object]) -> Sequence[str]:
        """Returns the names of those it showed."""
        ...


@runtime_checkable
class Flushes(Protocol):
    """A sink that buffers values."""

    def flush(self) -> None:
        """Write them."""
        ...


@runtime_checkable
class BeginsRuns(Protocol):
    """A sink that distinguishes runs, such as one for a tracking service."""

    def begin_run(self, details: Mapping[str, Scalar], *, resumed: bool) -> None:
        """Called once by the commands that train, before anything else; an error ends the run before it trains.

        Args:
            details: algorithm, env, seed, steps and other options of the run.
            resumed: whether it continues a run whose values the sink has seen.
        """
        ...


@runtime_checkable
class TakesFiles(Protocol):
    """A sink that stores files."""

    def take_files(self, paths: Sequence[Path]) -> None:
        """Called by `rlsdk run` and `rlsdk bench` when training has ended, with agents, settings and videos."""
        ...


class Failures:
    """Turns the error of a sink into one warning per sink; the sink is tried again at the next log."""

    def __init__(self) -> None:
        self._warned: set[int] = set()

    def guard(self, sink: object, work: Callable[[], object]) -> object:
        """The result of `work`, a call of `sink`; None where it raised."""
        try:
            return work()
        except Exception as error:
            if id(sink) not in self._warned:
                self._warned.add(id(sink))
                kind = type(sink).__name__
                warnings.warn(
                    f"metric sink {kind} {one_line(raised(error))}; training continues, and metrics may be missing in {kind}",
                    stacklevel=4,
                )
            return None


class Several:
    """Passes everything to each of its sinks; one that fails does not keep the others from theirs."""

    def __init__(self, sinks: Sequence[MetricSink]) -> None:
        self.sinks = tuple(sinks)
        self._failures = Failures()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for sink in self.sinks:
            self._failures.guard(sink, partial(sink.write, step, values))

    def close(self) -> None:
        for sink in self.sinks:
            self._failures.guard(sink, sink.close)

    def hyperparameters(self, values: Mapping[str, Scalar]) -> None:
        for sink in self.sinks:
            self._failures.guard(sink, partial(show_hyperparameters, sink, values))

    def histograms(self, step: int, tensors: Mapping[str, object]) -> bool:
        drawn = [self._failures.guard(s, partial(draw_histograms, s, step, tensors)) for s in self.sinks]
        return True in drawn


def begin_run(sinks: Sequence[MetricSink], details: Mapping[str, Scalar], *, resumed: bool = False) -> None:
    """Begin a run in every sink that distinguishes runs.

    Raises:
        SettingsError: a sink cannot, for example as its service is not reachable.
    """
    for sink in sinks:
        if isinstance(sink, BeginsRuns):
            try:
                sink.begin_run(details, resumed=resumed)
            except RlsdkError:
                raise
            except Exception as error:
                raise SettingsError(f"metric sink {type(sink).__name__} {raised(error)}; train without it") from error


def take_files(sinks: Sequence[MetricSink], paths: Sequence[Path]) -> None:
    """Pass files to every sink that stores them. If one fails, a warning is shown."""
    failures = Failures()
    for sink in sinks:
        if isinstance(sink, TakesFiles):
            failures.guard(sink, partial(sink.take_files, paths))


def show_hyperparameters(sink: object, values: Mapping[str, Scalar]) -> None:
    """Pass settings to a sink that takes them."""
    if isinstance(sink, TakesHyperparameters):
        sink.hyperparameters(values)


def draw_histograms(sink: object, step: int, tensors: Mapping[str, object]) -> bool:
    """Pass tensors to a sink that draws histograms; whether it does."""
    return isinstance(sink, DrawsHistograms) and sink.histograms(step, tensors) is not False


def several(sinks: Sequence[MetricSink]) -> MetricSink:
    """One sink for many."""
    return sinks[0] if len(sinks) == 1 else Several(sinks)
