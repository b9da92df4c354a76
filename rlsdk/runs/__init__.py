"""Single runs and sweeps over seeds, and the folders that they write.

`__all__` has the names for packages that work with runs: start them, read their folders, use their agents. They are imported on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.experiments.agent_path import find_agent
    from rlsdk.experiments.folder_kinds import require_kind
    from rlsdk.experiments.metrics_file import read_metric
    from rlsdk.experiments.recorded_run import environment_of
    from rlsdk.experiments.rl_zoo import rl_zoo_preset
    from rlsdk.experiments.run_directory import RunDirectory, folder_name
    from rlsdk.experiments.run_request import RunRequest
    from rlsdk.experiments.run_sinks import named_sinks
    from rlsdk.experiments.stored_agent import EvaluationRequest, evaluate_stored, load_agent
    from rlsdk.experiments.stored_tables import read_table
    from rlsdk.experiments.sweep import SeedResult, jobs_for, open_workers, require_shared, run_all
    from rlsdk.experiments.trust import require_trusted

HOMES = {
    "find_agent": "rlsdk.experiments.agent_path",
    "require_kind": "rlsdk.experiments.folder_kinds",
    "read_metric": "rlsdk.experiments.metrics_file",
    "environment_of": "rlsdk.experiments.recorded_run",
    "rl_zoo_preset": "rlsdk.experiments.rl_zoo",
    **dict.fromkeys(("RunDirectory", "folder_name"), "rlsdk.experiments.run_directory"),
    "RunRequest": "rlsdk.experiments.run_request",
    "named_sinks": "rlsdk.experiments.run_sinks",
    **dict.fromkeys(("EvaluationRequest", "evaluate_stored", "load_agent"), "rlsdk.experiments.stored_agent"),
    "read_table": "rlsdk.experiments.stored_tables",
    **dict.fromkeys(("SeedResult", "jobs_for", "open_workers", "require_shared", "run_all"), "rlsdk.experiments.sweep"),
    "require_trusted": "rlsdk.experiments.trust",
}
__all__ = [
    "EvaluationRequest",
    "RunDirectory",
    "RunRequest",
    "SeedResult",
    "environment_of",
    "evaluate_stored",
    "find_agent",
    "folder_name",
    "jobs_for",
    "load_agent",
    "named_sinks",
    "open_workers",
    "read_metric",
    "read_table",
    "require_kind",
    "require_shared",
    "require_trusted",
    "rl_zoo_preset",
    "run_all",
]
__getattr__, __dir__ = attach(__name__, HOMES)
