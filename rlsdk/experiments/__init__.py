"""Single runs and sweeps over seeds, and the folders that they write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.experiments.metrics_file import read_metric as read_metric
    from rlsdk.experiments.rl_zoo import rl_zoo_preset as rl_zoo_preset

__all__ = ["read_metric", "rl_zoo_preset"]

__getattr__, __dir__ = attach(
    __name__, {"read_metric": "rlsdk.experiments.metrics_file", "rl_zoo_preset": "rlsdk.experiments.rl_zoo"}
)
