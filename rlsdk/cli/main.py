"""Entry point of the `rlsdk` command."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from rlsdk.cli import (
    bench,
    check,
    compare,
    config,
    doctor,
    evaluate,
    exporting,
    hub,
    importing,
    info,
    inspect,
    listing,
    new,
    plot,
    record,
    run,
    tune,
    zoo,
)
from rlsdk.errors import RlsdkError
from rlsdk.runtime.output import plain_output, print_line

app = typer.Typer(
    name="rlsdk",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlsdk {version('rlsdk')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[  # read by its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train, evaluate and inspect reinforcement-learning agents; algorithms are plugins."""


app.command("list")(listing.list_algorithms)
app.command("info")(info.show_info)
app.command("config")(config.show_config)
app.command("run")(run.run_training)
app.command("eval")(evaluate.evaluate_file)
app.command("plot")(plot.plot_curves)
app.command("bench")(bench.run_bench)
app.command("compare")(compare.compare_runs)
app.command("tune")(tune.tune_algorithm)
app.command("record")(record.record_file)
app.command("import")(importing.import_agent)
app.command("export")(exporting.export_policy)
app.command("push")(hub.push_file)
app.command("pull")(hub.pull_file)
app.add_typer(zoo.app, name="zoo")
app.command("inspect")(inspect.inspect_file)
app.command("check")(check.check_plugin)
app.command("new")(new.new_plugin)
app.command("doctor")(doctor.diagnose)


def main() -> None:
    """Run the command line; errors meant for users are one message and exit code 1."""
    with plain_output():
        _run()


def _run() -> None:
    try:
        app()
    except RlsdkError as error:
        print_line(f"error: {error}", sys.stderr)
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that vanished
        print_line(
            f"error: {error}; files written before are complete; free some space or choose another place", sys.stderr
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
