"""Runs of the command line, the folders that they write, and evaluations of saved agents.

`__all__` has the names for packages that work with runs: start them, read their folders, use their agents. They are imported on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.runs.directory import RunDirectory as RunDirectory
    from rlsdk.runs.directory import find_agent as find_agent
    from rlsdk.runs.directory import folder_name as folder_name
    from rlsdk.runs.directory import read_metric as read_metric
    from rlsdk.runs.directory import require_kind as require_kind
    from rlsdk.runs.directory import require_resumable as require_resumable
    from rlsdk.runs.directory import require_trusted as require_trusted
    from rlsdk.runs.recorded_run import environment_of as environment_of
    from rlsdk.runs.request import RunRequest as RunRequest
    from rlsdk.runs.request import from_table as from_table
    from rlsdk.runs.request import read_table as read_table
    from rlsdk.runs.request import require_enough_steps as require_enough_steps
    from rlsdk.runs.runner import named_sinks as named_sinks
    from rlsdk.runs.runner import require_possible as require_possible
    from rlsdk.runs.runner import run as run
    from rlsdk.runs.runner import write_reports as write_reports
    from rlsdk.runs.stored_evaluation import EvaluationRequest as EvaluationRequest
    from rlsdk.runs.stored_evaluation import evaluate_stored as evaluate_stored
    from rlsdk.runs.stored_evaluation import load_agent as load_agent

HOMES = {
    **dict.fromkeys(("RunDirectory", "find_agent", "folder_name", "read_metric"), "rlsdk.runs.directory"),
    **dict.fromkeys(("require_kind", "require_resumable", "require_trusted"), "rlsdk.runs.directory"),
    "environment_of": "rlsdk.runs.recorded_run",
    **dict.fromkeys(("RunRequest", "from_table", "read_table", "require_enough_steps"), "rlsdk.runs.request"),
    **dict.fromkeys(("named_sinks", "require_possible", "run", "write_reports"), "rlsdk.runs.runner"),
    **dict.fromkeys(("EvaluationRequest", "evaluate_stored", "load_agent"), "rlsdk.runs.stored_evaluation"),
}
__all__ = sorted(HOMES)  # noqa: PLE0605  # type checkers read the imports above
__getattr__, __dir__ = attach(__name__, HOMES)
