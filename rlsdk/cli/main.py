"""Entry point of the `rlsdk` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

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
from rlsdk.errors import CALLED_ELSEWHERE, RlsdkError, closest, known_as
from rlsdk.runtime.output import plain_output, plain_warnings, print_line


class Command(TyperCommand):
    """A command whose error for an unknown option names ours for what other libraries call so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            given = getattr(error, "option_name", None)
            if given and hasattr(
                error, "possibilities"
            ):  # NoSuchOption, which versions of typer import from two places
                options = [option for parameter in self.params for option in parameter.opts if option.startswith("--")]
                if "--set" in options and (advice := _setting(str(given), options)):
                    ctx.fail(f"No such option: {given}; {advice}")
                meant = closest(str(given), options)
                error.possibilities = [meant] if meant is not None else []
            raise


def _setting(given: str, options: list[str]) -> str | None:
    """Advice for an unknown option of a command with settings; None if another option is probably meant."""
    name = given.strip("-").replace("-", "_")
    if name in ("algo", "algorithm", "agent"):
        return "the algorithm is the first argument, such as ppo"
    if known_as(given, options) is not None:
        return None
    meant = name if name in CALLED_ELSEWHERE else known_as(name, CALLED_ELSEWHERE)
    if meant is not None:
        table = "policy_kwargs." if meant in ("net_arch", "activation_fn") else ""
        return f"it is a setting: --set {table}{meant}=VALUE"
    return None if closest(given, options) is not None else "settings of the algorithm are given as --set NAME=VALUE"


class Commands(TyperGroup):
    """The commands; the error for an unknown one names ours for what other programs call so, such as `train`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and (meant := closest(args[0], self.commands)) is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="rlsdk",
    cls=Commands,
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
    app.command(_name, cls=Command, short_help=_summary, epilog=f"Example: rlsdk {_example}")(_function)
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
