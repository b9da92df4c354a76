"""Entry point of the `rlsdk` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
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


COMMANDS: tuple[tuple[str, Callable[..., object], str, str], ...] = (
    ("list", listing.list_algorithms, "List the installed algorithms.", "list"),
    ("info", info.show_info, "Show an algorithm: spaces, paper, hyper-parameters.", "info tqc"),
    (
        "config",
        config.show_config,
        "Print a settings file with comments.",
        "config tqc --preset Pendulum-v1 > run.toml",
    ),
    ("run", run.run_training, "Train an agent.", "run tqc --env Pendulum-v1 --steps 8000 --seed 0 --out runs/pendulum"),
    ("eval", evaluate.evaluate_file, "Evaluate a saved agent.", "eval runs/pendulum --episodes 20"),
    ("plot", plot.plot_curves, "Draw learning curves.", "plot runs/pendulum --out curve.png --band range"),
    ("bench", bench.run_bench, "Run a suite with several seeds.", "bench classic --algos ars --seeds 2 --budget 10000"),
    ("compare", compare.compare_runs, "Compare two sets of runs.", "compare runs/pendulum runs/wide"),
    (
        "tune",
        tune.tune_algorithm,
        "Search for hyper-parameters.",
        "tune trpo --env Pendulum-v1 --steps 8000 --trials 20 --out tuned",
    ),
    ("record", record.record_file, "Write a video of a saved agent.", "record runs/pendulum --out video.mp4"),
    (
        "record-episodes",
        record_episodes.record_episodes_of,
        "Record episodes to a data set.",
        "record-episodes runs/pendulum --episodes 5 --out demo",
    ),
    (
        "import",
        importing.import_agent,
        "Convert a model of stable-baselines3 or sb3-contrib.",
        "import trpo model.zip --env Pendulum-v1 --out imported.rlsdk",
    ),
    (
        "export",
        exporting.export_policy,
        "Write a policy as ONNX or torch.export.",
        "export runs/pendulum --out policy.onnx",
    ),
    ("push", hub.push_file, "Upload an agent to a model hub.", "push runs/pendulum me/pendulum"),
    ("pull", hub.pull_file, "Download an agent from a model hub.", "pull me/pendulum --out pulled.rlsdk"),
    ("inspect", inspect.inspect_file, "Show the contents of an agent file or data set.", "inspect runs/pendulum"),
    ("check", check.check_plugin, "Check a plugin against the contracts.", "check tqc --seconds 60"),
    ("new", new.new_plugin, "Write a plugin package.", "new my-first --family off-policy --actions continuous"),
    ("doctor", doctor.diagnose, "Check the installation.", "doctor"),
)
"""(name, function, summary in the list of commands, example on the page of the command) of each command. A test runs the
examples."""
for _name, _function, _summary, _example in COMMANDS:
    app.command(_name, short_help=_summary, epilog=f"Example: rlsdk {_example}")(_function)
app.add_typer(zoo.app, name="zoo", short_help="Trained agents of installed packages.")


def main() -> None:
    """Run the command line. For errors meant for users, print one message and end with exit code 1."""
    with plain_output(), plain_warnings():
        _run()


def _run() -> None:
    try:
        app()
    except RlsdkError as error:
        print_line(f"error: {error}", sys.stderr)
        sys.exit(1)
    except OSError as error:  # for example a full disk, or a folder that was removed
        print_line(
            f"error: {error}; files written before are complete; free some space or choose another place", sys.stderr
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
