"""The command line, `rlsdk`. Slow imports happen only when a command needs them.

`__all__` has the names for packages that add commands, see docs/writing-a-plugin.md: types of arguments and options that
commands share, and what a command does with their values. They are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.cli.completions import Algorithm as Algorithm
    from rlsdk.cli.completions import Environment as Environment
    from rlsdk.cli.completions import ExecutorName as ExecutorName
    from rlsdk.cli.completions import Sinks as Sinks
    from rlsdk.cli.completions import complete as complete
    from rlsdk.cli.options import MOST_ENVS as MOST_ENVS
    from rlsdk.cli.options import MOST_EPISODES as MOST_EPISODES
    from rlsdk.cli.options import MOST_SEED as MOST_SEED
    from rlsdk.cli.options import EnvKwargs as EnvKwargs
    from rlsdk.cli.options import Overwrite as Overwrite
    from rlsdk.cli.options import TrustedFile as TrustedFile
    from rlsdk.cli.options import Wrappers as Wrappers
    from rlsdk.cli.options import require_free as require_free
    from rlsdk.cli.options import steps_option as steps_option
    from rlsdk.cli.options import write_agent as write_agent
    from rlsdk.cli.run import settings_from as settings_from
    from rlsdk.settings.load import changed_environment as changed_environment

HOMES = {
    **dict.fromkeys(("Algorithm", "Environment", "ExecutorName", "Sinks", "complete"), "rlsdk.cli.completions"),
    **dict.fromkeys(("EnvKwargs", "TrustedFile", "Wrappers"), "rlsdk.cli.options"),
    "settings_from": "rlsdk.cli.run",
    **dict.fromkeys(("Overwrite", "require_free", "write_agent"), "rlsdk.cli.options"),
    **dict.fromkeys(("MOST_ENVS", "MOST_EPISODES", "MOST_SEED", "steps_option"), "rlsdk.cli.options"),
    "changed_environment": "rlsdk.settings.load",
}
__all__ = sorted(HOMES)  # noqa: PLE0605  # type checkers read the imports above
__getattr__, __dir__ = attach(__name__, HOMES)
