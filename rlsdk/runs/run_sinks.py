"""The metric sinks of a run of the command line, and the reports when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rlsdk.errors import PluginError, RlsdkError, SettingsError, message_of, one_line, suggest
from rlsdk.experiments.run_record import RunRecord
from rlsdk.registry import extension, extensions
from rlsdk.registry.loading import is_offered
from rlsdk.runtime.output import print_line
from rlsdk.sinks import ConsoleSink, MetricSink, TensorBoardSink
from rlsdk.sinks.sink import Scalar

BUILT_IN = ("console", "tensorboard")
Maker = Callable[[Path, bool], MetricSink]
"""Function that makes a sink for a run directory. The second argument is True if the run is resumed."""


def named_sinks(names: Iterable[str]) -> list[Maker]:
    """Return the functions that make the sinks of these names.

    Raises:
        SettingsError: there is no sink of a name.
        PluginError: the plugin that offers it is broken.
    """
    return [_named(name) for name in names]


def _named(name: str) -> Maker:
    if name == "console":
        return lambda folder, resumed: ConsoleSink()
    if name == "tensorboard":
        return lambda folder, resumed: TensorBoardSink(folder, name, continue_last=resumed)
    if not is_offered("sinks", name):
        known = (*BUILT_IN, *extensions("sinks"))
        raise SettingsError(
            f"unknown sink {name!r}; {suggest(name, known)}; metrics.csv and metrics.jsonl are always written"
        )
    make = extension("sinks", name)

    def made(folder: Path, resumed: bool) -> MetricSink:
        try:
            sink: MetricSink = make(folder)
        except (RlsdkError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the code of a package
            raise PluginError(f"the sink {name!r} of {make.__module__} {_raised(error)}; leave it out") from error
        return sink

    return made


def write_reports(folder: Path) -> None:
    """Call every report of an installed plugin with the folder of a run or sweep that ended. One that fails is printed."""
    for name in extensions("reports"):
        try:
            extension("reports", name)(folder)
        except RlsdkError as error:
            print_line(f"no {name}: {error}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an installed package must not end a complete run
            print_line(f"no {name}: the report {_raised(error)}; the files of the run are complete")


def _raised(error: BaseException) -> str:
    """Text about an exception of a package, on one line."""
    return f"raised {one_line(f'{type(error).__name__}: {message_of(error)}', 300)}"


def described_run(record: RunRecord) -> dict[str, Scalar]:
    """Return the metadata of a run that sinks show in addition to its settings."""
    names = ("algorithm", "env", "seed", "steps", "n_envs", "device", "preset")
    system = {f"versions.{name}": str(version) for name, version in record.system.items()}
    return {**{name: getattr(record, name) for name in names}, **system}
