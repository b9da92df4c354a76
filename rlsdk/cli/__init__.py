"""The command line, `rlsdk`. Slow imports happen only when a command needs them.

`__init__.pyi` lists the names for packages that add commands, see docs/writing-a-plugin.md: types of arguments and options
that commands share, and what a command does with their values. They are imported on first use.
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
