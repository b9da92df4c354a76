"""Single runs and sweeps over seeds, and the folders that they write.

`__all__` has the names for packages that work with runs: start them, read their folders, use their agents. They are imported on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.runs.directory import RunDirectory, find_agent, folder_name, read_metric, require_kind, require_trusted
    from rlsdk.runs.recorded_run import environment_of
    from rlsdk.runs.request import RunRequest, read_table
    from rlsdk.runs.runner import named_sinks
    from rlsdk.runs.sweep import (
        EvaluationRequest,
        SeedResult,
        evaluate_stored,
        jobs_for,
        load_agent,
        open_workers,
        require_shared,
        run_all,
    )

HOMES = {
    "find_agent": "rlsdk.runs.directory",
    "require_kind": "rlsdk.runs.directory",
    "read_metric": "rlsdk.runs.directory",
    "environment_of": "rlsdk.runs.recorded_run",
    **dict.fromkeys(("RunDirectory", "folder_name"), "rlsdk.runs.directory"),
    "RunRequest": "rlsdk.runs.request",
    "named_sinks": "rlsdk.runs.runner",
    **dict.fromkeys(("EvaluationRequest", "evaluate_stored", "load_agent"), "rlsdk.runs.sweep"),
    "read_table": "rlsdk.runs.request",
    **dict.fromkeys(("SeedResult", "jobs_for", "open_workers", "require_shared", "run_all"), "rlsdk.runs.sweep"),
    "require_trusted": "rlsdk.runs.directory",
}
__all__ = sorted(HOMES)  # noqa: PLE0605  # type checkers read the imports above
__getattr__, __dir__ = attach(__name__, HOMES)
