"""Evaluation of agents by playing episodes, and statistics over runs. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.evaluation.evaluate import Evaluation, evaluate_policy, run_episodes

__all__ = ["Evaluation", "evaluate_policy", "run_episodes"]

__getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, "rlsdk.evaluation.evaluate"))
