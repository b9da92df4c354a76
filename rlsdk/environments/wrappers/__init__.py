"""Wrappers of gymnasium environments that gymnasium itself does not have."""

from rlsdk.environments.wrappers.action_masker import ActionMasker
from rlsdk.environments.wrappers.check_nan import CheckNan
from rlsdk.environments.wrappers.combined_actions import CombinedActions
from rlsdk.environments.wrappers.mask_velocity import MaskVelocity
from rlsdk.environments.wrappers.monitor import Monitor
from rlsdk.environments.wrappers.monitor_results import load_results, plot_results, ts2xy
from rlsdk.environments.wrappers.time_feature import TimeFeature

__all__ = [
    "ActionMasker",
    "CheckNan",
    "CombinedActions",
    "MaskVelocity",
    "Monitor",
    "TimeFeature",
    "load_results",
    "plot_results",
    "ts2xy",
]
