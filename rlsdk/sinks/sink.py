"""What a metric sink has to have, and what it may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

Scalar = bool | int | float | str | None
"""The types in which a sink receives the value of a setting."""


@runtime_checkable
class MetricSink(Protocol):
    """Any object with these two methods receives metrics. It may also have the other members of `Sink`."""

    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Sink:
    """Receives metrics when they are logged. A class of your own derives from it, or has methods of the same names.

        class Printer(Sink):
            def write(self, step, values):
                print(step, values["rollout/ep_rew_mean"])

    Every method does nothing until it is overridden. One that raises an exception costs a warning; training continues.
    """

    format = ""
    """The name that excludes the sink in `Logger.record(exclude=)`."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers. Steps never decrease; the names are listed in docs/metrics.md."""

    def close(self) -> None:
        """Write what is left, and close files."""

    def flush(self) -> None:
        """Write the buffered values."""

    def hyperparameters(self, values: Mapping[str, Scalar]) -> None:
        """Show the settings `values`. It is called once, when training starts."""

    def histograms(self, step: int, tensors: Mapping[str, object]) -> object:
        """Draw a histogram of each tensor [..]; return False if nothing was drawn. A callback calls it."""
        return False

    def media(self, step: int, values: Mapping[str, object]) -> Sequence[str]:
        """Show texts, None, arrays or tensors with several entries, or the objects of `rlsdk.sinks.media`, and return the
        names of the values that were shown.

        The logger passes all values of a step in one call. If this raises an exception, it passes each value alone.
        """
        return ()

    def begin_run(self, details: Mapping[str, Scalar], *, resumed: bool) -> None:
        """Begin a run. The commands that train call it once, before anything else; an error ends the run before it trains.

        Args:
            details: algorithm, env, seed, steps and other options of the run.
            resumed: whether the run continues an earlier one, whose values the sink has received.
        """

    def take_files(self, paths: Sequence[Path]) -> None:
        """Store these files: agents, settings and videos. `rlsdk run` calls it when training has ended."""


def method_of(sink: object, name: str) -> Callable[..., Any]:
    """The method of a sink, or that of `Sink`, which does nothing, if the sink has none of this name."""
    found: Callable[..., Any] = getattr(sink, name, None) or getattr(Sink(), name)
    return found
