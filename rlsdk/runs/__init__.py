"""Single runs and sweeps over seeds, and the folders that they write.

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
    from rlsdk.runs.directory import require_trusted as require_trusted
    from rlsdk.runs.recorded_run import environment_of as environment_of
    from rlsdk.runs.request import RunRequest as RunRequest
    from rlsdk.runs.request import read_table as read_table
    from rlsdk.runs.runner import named_sinks as named_sinks
    from rlsdk.runs.sweep import EvaluationRequest as EvaluationRequest
    from rlsdk.runs.sweep import SeedResult as SeedResult
    from rlsdk.runs.sweep import evaluate_stored as evaluate_stored
    from rlsdk.runs.sweep import jobs_for as jobs_for
    from rlsdk.runs.sweep import load_agent as load_agent
    from rlsdk.runs.sweep import open_workers as open_workers
    from rlsdk.runs.sweep import require_shared as require_shared
    from rlsdk.runs.sweep import run_all as run_all

HOMES = {
    **dict.fromkeys(("RunDirectory", "find_agent", "folder_name", "read_metric"), "rlsdk.runs.directory"),
    **dict.fromkeys(("require_kind", "require_trusted"), "rlsdk.runs.directory"),
    "environment_of": "rlsdk.runs.recorded_run",
    **dict.fromkeys(("RunRequest", "read_table"), "rlsdk.runs.request"),
    "named_sinks": "rlsdk.runs.runner",
    **dict.fromkeys(("EvaluationRequest", "SeedResult", "evaluate_stored", "jobs_for"), "rlsdk.runs.sweep"),
    **dict.fromkeys(("load_agent", "open_workers", "require_shared", "run_all"), "rlsdk.runs.sweep"),
}
__all__ = sorted(HOMES)  # noqa: PLE0605  # type checkers read the imports above
__getattr__, __dir__ = attach(__name__, HOMES)
