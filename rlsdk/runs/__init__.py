"""Runs of the command line, the folders that they write, and evaluations of saved agents.

`__init__.pyi` lists the names for packages that work with runs: start them, read their folders, use their agents. They are
imported on first use.
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
