"""The command line, `rlsdk`. Slow imports happen only when a command needs them.

`__all__` has the names for packages that add commands, see docs/writing-a-plugin.md: types of arguments and options that
commands share, and what a command does with their values. They are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.cli.completions import Algorithm, Environment, ExecutorName, Sinks, complete
    from rlsdk.cli.main import interrupted
    from rlsdk.cli.options import (
        MOST_ENVS,
        MOST_EPISODES,
        MOST_SEED,
        EnvKwargs,
        Overwrite,
        TrustedFile,
        Wrappers,
        require_free,
        steps_option,
        write_agent,
    )
    from rlsdk.cli.run import settings_from
    from rlsdk.settings.load import changed_environment

HOMES = {
    **dict.fromkeys(("Algorithm", "Environment", "ExecutorName", "Sinks", "complete"), "rlsdk.cli.completions"),
    **dict.fromkeys(("EnvKwargs", "TrustedFile", "Wrappers"), "rlsdk.cli.options"),
    "changed_environment": "rlsdk.settings.load",
    "interrupted": "rlsdk.cli.main",
    "settings_from": "rlsdk.cli.run",
    **dict.fromkeys(("Overwrite", "require_free", "write_agent"), "rlsdk.cli.options"),
    **dict.fromkeys(("MOST_ENVS", "MOST_EPISODES", "MOST_SEED", "steps_option"), "rlsdk.cli.options"),
}
__all__ = [
    "MOST_ENVS",
    "MOST_EPISODES",
    "MOST_SEED",
    "Algorithm",
    "EnvKwargs",
    "Environment",
    "ExecutorName",
    "Overwrite",
    "Sinks",
    "TrustedFile",
    "Wrappers",
    "changed_environment",
    "complete",
    "interrupted",
    "require_free",
    "settings_from",
    "steps_option",
    "write_agent",
]
__getattr__, __dir__ = attach(__name__, HOMES)
