"""The logger of an agent: it writes the metrics of the training and the values that users and callbacks record."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlsdk.errors import RlsdkError, SettingsError, one_line, raised, shown, suggest
from rlsdk.runtime.lazy import elsewhere
from rlsdk.sinks.sink import DRAWN, MetricSink, Scalar, entries_of, method_of

FORMATS = ("stdout", "log", "csv", "json", "tensorboard")


class Logger:
    """Collects values under names and writes them to every sink at each log of a training, or when `dump` is called.

    Numbers go to every sink. Texts, lists, arrays and the objects of `rlsdk.sinks.sink` go to the sinks that can show them.
    Values that no sink can show are left out; one warning names them. If one sink fails, the others still receive the values.
    A logger is itself a sink.
    """

    def __init__(self, folder: str | None = None, output_formats: Iterable[MetricSink] = ()) -> None:
        """`output_formats` are the sinks; `folder` is the folder of their files, if they write any."""
        self.sinks: tuple[MetricSink, ...] = ()
        self.use(output_formats)
        self.folder = folder
        self.name_to_value: dict[str, Any] = {}
        self.name_to_count: dict[str, int] = {}
        self.name_to_excluded: dict[str, tuple[str, ...]] = {}
        self.current_step: Callable[[], int] = lambda: 0
        """Returns the number of environment steps so far; `dump` calls it if it gets no step."""
        self._ignored: set[str] = set()
        self._warned: set[tuple[int, str]] = set()
        """The sinks (by id), and the values, whose failure was warned of."""

    if not TYPE_CHECKING:  # with a `__getattr__`, type checkers would accept unknown names
        __getattr__ = elsewhere

    def use(self, sinks: Iterable[MetricSink]) -> None:
        """Replace the sinks by these. Values that are recorded but not yet written go to the new sinks."""
        self.sinks = tuple(part for sink in sinks for part in (sink.sinks if isinstance(sink, Logger) else (sink,)))

    # --- recording ---------------------------------------------------------------------------------------------------

    def record(self, key: str, value: object, exclude: str | tuple[str, ...] | None = None) -> None:
        """Store `value` under `key` until the next log writes it. A later value under the same key replaces it.

        Args:
            key: the name of the value, such as "my/value".
            value: a number, or an array or tensor with one entry; a text or None; a list, array or tensor with several
                entries (TensorBoard and trackers draw a histogram); an `Image`, `Figure`, `Video` or `HParam`; a mapping of
                these, whose entries are named `key/entry`.
            exclude: the formats that do not get the value: stdout, log, csv, json, tensorboard.

        Raises:
            SettingsError: a format is unknown, or `key` is empty, is not a text or is the reserved name "step".
        """
        self.name_to_excluded[_required_name(key)] = _formats(exclude)
        self.name_to_value[key] = value

    def record_mean(self, key: str, value: float | None, exclude: str | tuple[str, ...] | None = None) -> None:
        """Add `value` to the values under `key`; the next log writes their mean. None is ignored.

        Raises:
            SettingsError: as `record`, or `value` is not a number or array.
        """
        self.name_to_excluded[_required_name(key)] = _formats(exclude)
        if value is None:
            return
        count = self.name_to_count.get(key, 0)
        # A value without count comes from `record`: no mean continues it.
        before = self.name_to_value.get(key, 0.0) if count else 0.0
        try:
            self.name_to_value[key] = (before * count + value) / (count + 1)
        except (TypeError, ValueError):
            raise SettingsError(
                f"record_mean({key!r}, {shown(value, 60)}): there is a mean of numbers only; use record"
            ) from None
        self.name_to_count[key] = count + 1

    def dump(self, step: int | None = None) -> None:
        """Write the values recorded since the last log, at `step` (default: the environment steps of the training)."""
        if self.name_to_value:
            self.write(self.current_step() if step is None else step, {})
            self._pass_on("flush")

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """Write `values` and the recorded values. Where both have a name, the recorded value is written."""
        merged = {**values, **self.name_to_value}
        excluded = self.name_to_excluded
        self.name_to_value, self.name_to_count, self.name_to_excluded = {}, {}, {}
        numbers, others, hidden = dict[str, float](), dict[str, object](), dict[str, tuple[str, ...]]()
        for key, recorded in merged.items():
            for name, value in entries_of(key, recorded):
                hidden[name] = excluded.get(key, ())
                if isinstance(value, int | float):
                    numbers[name] = value
                else:
                    others[name] = value
        for sink in self.sinks:
            format_ = getattr(sink, "format", "")
            if own := {n: v for n, v in numbers.items() if format_ not in hidden[n]}:
                self._guard(sink, partial(sink.write, step, own))
        if others:
            self._write_others(step, others, hidden)

    def _write_others(self, step: int, values: Mapping[str, object], excluded: Mapping[str, tuple[str, ...]]) -> None:
        shown: set[str] = set()
        for sink in self.sinks:
            format_ = getattr(sink, "format", "")
            own = {n: v for n, v in values.items() if format_ not in excluded.get(n, ())}
            if own:
                shown |= self._show_in(sink, step, own)
        missed = {n: v for n, v in values.items() if n not in shown | self._ignored and not excluded.get(n)}
        if missed and self.sinks:
            self._ignored |= missed.keys()
            warnings.warn(_message_about(missed, self.sinks), stacklevel=4)

    def _show_in(self, sink: MetricSink, step: int, values: Mapping[str, object]) -> set[str]:
        """Pass values to a sink in one call, or one by one if this fails: one that fails costs no other. Return the names of
        those that need no further warning: the sink showed them, or their failure was reported."""
        media = method_of(sink, "media")
        try:
            return set(media(step, values))
        except Exception:
            done = set[str]()
        for name, value in values.items():
            # no text is to blame itself
            about = "" if value is None or isinstance(value, str) else name
            shown = self._guard(sink, partial(media, step, {name: value}), about)
            done |= {name} if shown is None else set(cast("Iterable[str]", shown))
        return done

    def _guard(self, sink: object, work: Callable[[], object], about: str = "") -> object:
        """Call `work`, which calls `sink`, and return its result; None if it raised an exception. `about` names a value.

        Errors become warnings, one per sink and value. A sink that failed is called again at the next log.
        """
        try:
            return work()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # SystemExit too: no sink may end a training, least of all with success
            # One warning for each: a sink that fails would otherwise repeat it at every log.
            if (id(sink), about) not in self._warned:
                self._warned.add((id(sink), about))
                kind, value = type(sink).__name__, f", with {about!r}," if about else ""
                warnings.warn(
                    f"the logger {kind}{value} {one_line(raised(error))}; training continues, and metrics may be missing in"
                    f" {kind}",
                    stacklevel=4,
                )
            return None

    def _pass_on(self, method: str, *details: object) -> list[object]:
        """Call a method of every sink, and return the results; None for a sink that failed."""
        return [self._guard(sink, partial(method_of(sink, method), *details)) for sink in self.sinks]

    def hyperparameters(self, values: Mapping[str, Scalar]) -> None:
        """Pass the settings to every sink."""
        self._pass_on("hyperparameters", values)

    def histograms(self, step: int, tensors: Mapping[str, object]) -> bool:
        """Pass tensors [..] to every sink; return whether any sink drew them."""
        drawn = [self._guard(sink, partial(_draw_histograms, sink, step, tensors)) for sink in self.sinks]
        return True in drawn

    def begin_run(self, details: Mapping[str, Scalar], *, resumed: bool = False) -> None:
        """Begin a run in every sink; see `Sink.begin_run`.

        Raises:
            SettingsError: a sink cannot begin the run, for example because its service is not reachable.
        """
        for sink in self.sinks:
            try:
                method_of(sink, "begin_run")(details, resumed=resumed)
            except RlsdkError:
                raise
            except Exception as error:
                raise SettingsError(f"the logger {type(sink).__name__} {raised(error)}; train without it") from error

    def take_files(self, paths: Sequence[Path]) -> None:
        """Pass files to every sink."""
        # missing files are reported even for a sink whose metrics failed
        self._warned.clear()
        self._pass_on("take_files", paths)

    def close(self) -> None:
        """Close every sink."""
        self._pass_on("close")


def _draw_histograms(sink: MetricSink, step: int, tensors: Mapping[str, object]) -> bool:
    """Whether the sink drew a histogram of the tensors [..]."""
    return method_of(sink, "histograms")(step, tensors) is not False


def _message_about(missed: Mapping[str, object], sinks: Iterable[MetricSink]) -> str:
    """A message about values that no sink shows: their names and kinds, and what to do."""
    named = ", ".join(f"{name!r} ({type(missed[name]).__name__})" for name in sorted(missed))
    drawn = any(isinstance(value, DRAWN) or hasattr(value, "shape") for value in missed.values())
    sinks = list(sinks)
    advice = []
    if drawn and "tensorboard" not in {getattr(sink, "format", "") for sink in sinks}:
        advice.append(
            "set tensorboard_log (extra rlsdk[tensorboard]), or add a tracker, to see pictures and large arrays"
        )
    if not all(isinstance(value, DRAWN) or hasattr(value, "shape") for value in missed.values()):
        advice.append("record numbers, texts, lists, arrays or the objects of rlsdk.sinks")
    here = ", ".join(type(sink).__name__ for sink in sinks)
    return f"no logger ({here}) shows {named}; left out{''.join('; ' + text for text in advice)}"


def _required_name(key: object) -> str:
    if not isinstance(key, str) or not key or key == "step":
        raise SettingsError(f"{key!r} cannot be the name of a value; give a text such as 'my/value', other than 'step'")
    return key


def _formats(exclude: str | tuple[str, ...] | None) -> tuple[str, ...]:
    found = () if exclude is None else (exclude,) if isinstance(exclude, str) else tuple(exclude)
    for name in found:
        if name not in FORMATS:
            raise SettingsError(f"exclude = {name!r} is not a format; {suggest(name, FORMATS)}")
    return found
