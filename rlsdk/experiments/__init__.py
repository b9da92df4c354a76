"""Single runs and sweeps over seeds, and the folders that they write.

`__all__` has the names for packages that work with runs: start them, read their folders, use their agents. They are imported on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.experiments.agent_path import find_agent as find_agent
    from rlsdk.experiments.metrics_file import read_metric as read_metric
    from rlsdk.experiments.rl_zoo import rl_zoo_preset as rl_zoo_preset
    from rlsdk.experiments.run_directory import RunDirectory as RunDirectory
    from rlsdk.experiments.run_request import RunRequest as RunRequest
    from rlsdk.experiments.stored_agent import EvaluationRequest as EvaluationRequest
    from rlsdk.experiments.stored_agent import evaluate_stored as evaluate_stored
    from rlsdk.experiments.stored_agent import load_agent as load_agent
    from rlsdk.experiments.sweep import SeedResult as SeedResult

HOMES = {
    "find_agent": "rlsdk.experiments.agent_path",
    "read_metric": "rlsdk.experiments.metrics_file",
    "rl_zoo_preset": "rlsdk.experiments.rl_zoo",
    "RunDirectory": "rlsdk.experiments.run_directory",
    "RunRequest": "rlsdk.experiments.run_request",
    **dict.fromkeys(("EvaluationRequest", "evaluate_stored", "load_agent"), "rlsdk.experiments.stored_agent"),
    "SeedResult": "rlsdk.experiments.sweep",
}
__all__ = [
    "EvaluationRequest",
    "RunDirectory",
    "RunRequest",
    "SeedResult",
    "evaluate_stored",
    "find_agent",
    "load_agent",
    "read_metric",
    "rl_zoo_preset",
]
__getattr__, __dir__ = attach(__name__, HOMES)
