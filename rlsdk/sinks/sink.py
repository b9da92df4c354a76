"""The protocol of metric sinks, optional methods of sinks, and a sink that passes values to several sinks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlsdk.errors import RlsdkError, SettingsError, one_line, raised

Scalar = bool | int | float | str | None
"""The types in which a sink receives the value of a setting."""


@runtime_checkable
class MetricSink(Protocol):
    """Receives metrics when they are logged. Steps never decrease; the names are listed in docs/metrics.md.

    A sink may also implement `BeginsRuns`, `TakesHyperparameters`, `DrawsHistograms`, `ShowsMedia`, `TakesFiles` and
    `Flushes`. Its attribute `format`, if there is one, is the name that excludes it in `Logger.record(exclude=)`.
    """

    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class TakesHyperparameters(Protocol):
    """A sink that shows settings."""

    def hyperparameters(self, values: Mapping[str, Scalar]) -> None:
        """Show the settings `values`. It is called once, when training starts."""
        ...


@runtime_checkable
class DrawsHistograms(Protocol):
    """A sink that draws histograms."""

    def histograms(self, step: int, tensors: Mapping[str, object]) -> object:
        """Draw a histogram of each tensor [..]; return False if nothing was drawn. A callback calls it."""
        ...


@runtime_checkable
class ShowsMedia(Protocol):
    """A sink that shows texts, None, arrays or tensors with several entries, or the objects of `rlsdk.sinks.media`."""

    def media(self, step: int, values: Mapping[str, object]) -> Sequence[str]:
        """Show the values of these names, and return the names of the values that were shown.

        The logger passes all values of a step in one call. If this raises an exception, it passes each value alone.
        """
        ...


@runtime_checkable
class Flushes(Protocol):
    """A sink that buffers values."""

    def flush(self) -> None:
        """Write the buffered values."""
        ...


@runtime_checkable
class BeginsRuns(Protocol):
    """A sink that distinguishes runs, such as one for a tracking service."""

    def begin_run(self, details: Mapping[str, Scalar], *, resumed: bool) -> None:
        """Begin a run. The commands that train call it once, before anything else; an error ends the run before it trains.

        Args:
            details: algorithm, env, seed, steps and other options of the run.
            resumed: whether the run continues an earlier one, whose values the sink has received.
        """
        ...


@runtime_checkable
class TakesFiles(Protocol):
    """A sink that stores files."""

    def take_files(self, paths: Sequence[Path]) -> None:
        """Store these files: agents, settings and videos. `rlsdk run` and `rlsdk bench` call it when training has ended."""
        ...


class Failures:
    """Turns errors of sinks into warnings, one per sink and value. A sink that failed is called again at the next log."""

    def __init__(self) -> None:
        self._warned: set[tuple[int, str]] = set()

    def guard(self, sink: object, work: Callable[[], object], about: str = "") -> object:
        """Call `work`, which calls `sink`, and return its result; None if it raised an exception. `about` names a value."""
        try:
            return work()
        except Exception as error:
            if (id(sink), about) not in self._warned:
                self._warned.add((id(sink), about))
                kind, value = type(sink).__name__, f", with {about!r}," if about else ""
                warnings.warn(
                    f"metric sink {kind}{value} {one_line(raised(error))}; training continues, and metrics may be missing in"
                    f" {kind}",
                    stacklevel=4,
                )
            return None


class Several:
    """A sink that passes everything to each of several sinks. If one fails, the others still receive the values."""

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
        SettingsError: a sink cannot begin the run, for example because its service is not reachable.
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
    """Pass the settings to `sink` if it accepts settings."""
    if isinstance(sink, TakesHyperparameters):
        sink.hyperparameters(values)


def draw_histograms(sink: object, step: int, tensors: Mapping[str, object]) -> bool:
    """Pass tensors [..] to `sink` if it draws histograms; return whether it drew them."""
    return isinstance(sink, DrawsHistograms) and sink.histograms(step, tensors) is not False


def several(sinks: Sequence[MetricSink]) -> MetricSink:
    """Return one sink that passes everything to all of `sinks`; the sink itself if there is only one."""
    return sinks[0] if len(sinks) == 1 else Several(sinks)
