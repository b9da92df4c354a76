"""The entry point of the `rlsdk` command: its own commands and those of installed packages."""

from __future__ import annotations

import _thread
import faulthandler
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from os import _exit  # the function itself: the guard of plugins replaces `os._exit`
from types import FrameType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from rlsdk.errors import CALLED_ELSEWHERE, PluginError, RlsdkError, closest, difference, known_as
from rlsdk.registry.discovery import SWITCH, described
from rlsdk.registry.loading import extension, is_offered, naming_plugins, offered_commands
from rlsdk.runtime.output import plain_help, plain_output, plain_warnings, print_line
from rlsdk.runtime.packages import pip_install

OWN: Mapping[str, tuple[str, str, str]] = {
    "list": ("rlsdk.cli.plugins:list_algorithms", "List the installed algorithms.", "list"),
    "info": ("rlsdk.cli.plugins:show_info", "Show an algorithm: spaces, paper, hyper-parameters.", "info tqc"),
    "config": (
        "rlsdk.cli.agents:show_config",
        "Print a settings file with comments.",
        "config tqc --preset Pendulum-v1 > run.toml",
    ),
    "run": (
        "rlsdk.cli.run:run_training",
        "Train an agent (also: train).",
        "run tqc --env Pendulum-v1 --steps 8000 --seed 0 --out runs/pendulum",
    ),
    "eval": ("rlsdk.cli.agents:evaluate_file", "Evaluate a saved agent.", "eval runs/pendulum --episodes 20"),
    "inspect": (
        "rlsdk.cli.agents:inspect_file",
        "Show the contents of an agent file or data set.",
        "inspect runs/pendulum",
    ),
}
"""Name -> (module:function, summary in the list of commands, example on the page of the command). A test parses them."""
PACKAGES: Mapping[str, str] = {
    **dict.fromkeys(("bench", "compare", "plot", "record", "tune", "ui", "watch"), "rlsdk-lab"),
    **dict.fromkeys(("check", "doctor", "new"), "rlsdk-testing"),
    **dict.fromkeys(("export", "import", "pull", "push", "record-episodes"), "rlsdk-interchange"),
    "zoo": "rlsdk-zoo",
}
"""Command that another package of this project offers -> that package."""
OTHER_NAMES = {"train": "run", "enjoy": "watch", "evaluate": "eval"}
"""Name of a command in other programs -> our command, unless a package has a command of that name."""
ClickError = cast("type[Exception]", typer.BadParameter.__mro__[2])
"""`ClickException`, the class of errors about a command line. Some versions of typer import click, others contain a copy."""


class Commands(Mapping[str, Any]):
    """Name -> command of Typer. Iteration gives the names; a command is imported when it is looked up."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter((*OWN, *offered_commands()))

    def __len__(self) -> int:
        return len((*OWN, *offered_commands()))

    def __getitem__(self, name: str) -> Any:
        # Typer looks a command up several times in one call.
        if name not in self._made:
            self._made[name] = _command(name)
        return self._made[name]


class Command(TyperCommand):
    """A command whose error for an unknown option names ours for what other libraries call so.

    Its page shows the options in groups, those of `rich_help_panel`.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (row := parameter.get_help_record(ctx)) is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                title = getattr(parameter, "rich_help_panel", None) or usual
                groups.setdefault(title, []).append((plain_help(row[0]), plain_help(row[1])))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            given = getattr(error, "option_name", None)
            # NoSuchOption, which versions of typer import from two places
            if given and hasattr(error, "possibilities"):
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
        return f"it is a setting: --set {table}{meant}=VALUE{difference(name, meant, ', where ')}"
    return None if closest(given, options) is not None else "settings of the algorithm are given as --set NAME=VALUE"


class CommandGroup(TyperGroup):
    """The program `rlsdk`: its list of commands imports none of them."""

    def __init__(self, **settings: Any) -> None:
        """`settings`: those of `TyperGroup`."""
        super().__init__(**settings)
        self.commands: Any = Commands()

    def list_commands(self, ctx: object) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            if args[0] in OTHER_NAMES:
                args = [OTHER_NAMES[args[0]], *args[1:]]
            elif meant := closest(args[0], (*self.commands, *OTHER_NAMES)):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: object, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _texts(name)[1]) for name in self.commands])


def print_error(text: str) -> None:
    """Print `error: ...` to standard error."""
    print_line(f"error: {text}", sys.stderr)


def _texts(name: str) -> tuple[str, ...]:
    """Place, summary and example of a command; where several plugins offer it, those of the first."""
    return OWN[name] if name in OWN else offered_commands()[name][0][1]


def _command(name: str) -> Any:
    """Import a command.

    Raises:
        KeyError: no installed package has it.
        PluginError: the package that has it is not installed, or the command cannot be imported.
    """
    if name in OWN:
        module, _, attribute = OWN[name][0].partition(":")
        function = getattr(import_module(module), attribute)
    elif name in PACKAGES and name not in offered_commands():
        hidden = f" or hidden by {SWITCH}" if os.environ.get(SWITCH) else ""
        fix = pip_install(PACKAGES[name])
        raise PluginError(
            f"`rlsdk {name}` is a command of {PACKAGES[name]}, which is not installed{hidden}; install it: {fix}"
        )
    elif is_offered("commands", name):
        function = extension("commands", name)
    else:
        # As every mapping; Typer then reports an unknown command.
        raise KeyError(name)
    if isinstance(function, typer.Typer):
        return typer.main.get_command(function)
    _, summary, example = _texts(name)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    alone.command(name, cls=Command, short_help=summary, epilog=f"Example: rlsdk {example}")(function)
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=CommandGroup,
    name="rlsdk",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    # Otherwise Typer imports rich, which takes 80 ms of every command.
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


def main() -> None:
    """Run the command line. For errors meant for users, print one message and end with exit code 1.

    If C code crashes, such as that of a plugin or an environment, Python prints where.
    """
    if not faulthandler.is_enabled():
        with suppress(AttributeError, RuntimeError, OSError, ValueError):  # standard error is missing or no file
            faulthandler.enable(all_threads=False)
    with heeded(), plain_output(), plain_warnings():
        _run()


def _run() -> None:
    try:
        with naming_plugins():
            # without its own printing of errors, typer returns the exit code of `typer.Exit`
            code = app(standalone_mode=False)
        if isinstance(code, int) and code:
            sys.exit(code)
    except (ClickError, typer.Abort) as error:
        sys.exit(_print_misuse(error))
    except RlsdkError as error:
        print_error(str(error))
        sys.exit(1)
    except ModuleNotFoundError as error:  # a command of a package whose requirement was removed
        if not (error.name or "").startswith("rlsdk_"):
            raise
        print_error(described(error, None))
        sys.exit(1)
    except OSError as error:  # for example a full disk, or a folder that was removed
        print_error(f"{error}; check that the place exists and has space; files written before are complete")
        sys.exit(1)
    except KeyboardInterrupt:
        # As shells report it: 128 and the number of SIGINT.
        sys.exit(130)
    except Exception as error:
        # a kernel may fail in any command that acts; without this module no kernel was used
        kernels = sys.modules.get("rlsdk.kernels.factory")
        if kernels is None or (fault := kernels.kernel_fault(error)) is None:
            raise
        print_error(fault)
        sys.exit(1)


def _print_misuse(error: Exception) -> int:
    """Print what is wrong with a command line, or that a question was not answered. Return the exit code."""
    if isinstance(error, typer.Abort):
        print_error("aborted")
        return 1
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
        print(error, file=sys.stderr)
        return 2
    page = getattr(error, "ctx", None)
    print_error(getattr(error, "format_message", error.__str__)())
    print_line(f"hint: {page.command_path if page else 'rlsdk'} --help", sys.stderr)
    return 2


@contextmanager
def imports_of_command() -> Iterator[None]:
    """For imports of a command: collect no garbage in the block, and leave its objects out of all later collections.

    torch makes 255,000 objects that live until the process ends. To search them for garbage, again and again while they are
    made and once more at the end, took up to a third of the time of a short command.
    """
    # imported before: a program of somebody else calls the command
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def heeded() -> Iterator[None]:
    """Inside the block, Ctrl-C is not lost in code that drops exceptions. (A signal that is ignored stays ignored.)

    While a module is imported, the process ends at once, with exit code 130: an exception in C++ code of torch that runs then
    was dropped in some attempts, and aborted the process in others. Nothing is half-written that a kill would not leave.
    Where Python itself drops exceptions, such as `__del__` and callbacks of weak references, the signal is sent again.
    """
    if threading.current_thread() is not threading.main_thread() or not _is_default():
        yield
        return
    hook = sys.unraisablehook
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _repeat
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_default() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            _exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def _repeat(dropped: sys.UnraisableHookArgs) -> None:
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        again = threading.Timer(0.05, _thread.interrupt_main)  # inside this function it would be dropped again
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(dropped)


if __name__ == "__main__":
    main()
