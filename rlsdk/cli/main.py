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
    record_episodes,
    run,
    tune,
    zoo,
)
from rlsdk.errors import RlsdkError
from rlsdk.runtime.output import plain_output, plain_warnings, print_line

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


# each epilog is the example on the command's page, and run by a test
app.command("list", epilog="Example: rlsdk list")(listing.list_algorithms)
app.command("info", epilog="Example: rlsdk info tqc")(info.show_info)
app.command("config", epilog="Example: rlsdk config tqc --preset Pendulum-v1 > run.toml")(config.show_config)
app.command("run", epilog="Example: rlsdk run tqc --env Pendulum-v1 --steps 8000 --seed 0 --out runs/pendulum")(
    run.run_training
)
app.command("eval", epilog="Example: rlsdk eval runs/pendulum --episodes 20")(evaluate.evaluate_file)
app.command("plot", epilog="Example: rlsdk plot runs/pendulum --out curve.png --band range")(plot.plot_curves)
app.command("bench", epilog="Example: rlsdk bench classic --algos ars --seeds 2 --budget 10000")(bench.run_bench)
app.command("compare", epilog="Example: rlsdk compare runs/pendulum runs/wide")(compare.compare_runs)
app.command("tune", epilog="Example: rlsdk tune trpo --env Pendulum-v1 --steps 8000 --trials 20 --out tuned")(
    tune.tune_algorithm
)
app.command("record", epilog="Example: rlsdk record runs/pendulum --out video.mp4")(record.record_file)
app.command("record-episodes", epilog="Example: rlsdk record-episodes runs/pendulum --episodes 5 --out demo")(
    record_episodes.record_episodes_of
)
app.command("import", epilog="Example: rlsdk import trpo model.zip --env Pendulum-v1 --out imported.rlsdk")(
    importing.import_agent
)
app.command("export", epilog="Example: rlsdk export runs/pendulum --out policy.onnx")(exporting.export_policy)
app.command("push", epilog="Example: rlsdk push runs/pendulum me/pendulum")(hub.push_file)
app.command("pull", epilog="Example: rlsdk pull me/pendulum --out pulled.rlsdk")(hub.pull_file)
app.add_typer(zoo.app, name="zoo")
app.command("inspect", epilog="Example: rlsdk inspect runs/pendulum")(inspect.inspect_file)
app.command("check", epilog="Example: rlsdk check tqc --seconds 60")(check.check_plugin)
app.command("new", epilog="Example: rlsdk new my-first --family off-policy --actions continuous")(new.new_plugin)
app.command("doctor", epilog="Example: rlsdk doctor")(doctor.diagnose)


def main() -> None:
    """Run the command line; errors meant for users are one message and exit code 1."""
    with plain_output(), plain_warnings():
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
