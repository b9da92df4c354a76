"""Environments: adapters to gymnasium and vector environments. Public names are imported on first use.

`HOMES` has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.environments.adapters.checks import name_of as name_of
    from rlsdk.environments.adapters.checks import named as named
    from rlsdk.environments.adapters.masks import GoalRules as GoalRules
    from rlsdk.environments.adapters.masks import get_action_masks as get_action_masks
    from rlsdk.environments.adapters.masks import is_masking_supported as is_masking_supported
    from rlsdk.environments.adapters.observations import rows_of as rows_of
    from rlsdk.environments.adapters.observations import to_gymnasium as to_gymnasium
    from rlsdk.environments.adapters.observations import to_space as to_space
    from rlsdk.environments.gymnasium_adapter import connect as connect
    from rlsdk.environments.states import OpaqueValue as OpaqueValue
    from rlsdk.environments.states import read_state as read_state
    from rlsdk.environments.vector.connected import ConnectedEnv as ConnectedEnv
    from rlsdk.environments.vector.connected import SteppedVector as SteppedVector
    from rlsdk.environments.vector.connected import fingerprint_of as fingerprint_of
    from rlsdk.environments.vector.connected import require_copies as require_copies
    from rlsdk.environments.vector.custom_vector import require_features as require_features
    from rlsdk.environments.vector.custom_vector import require_tensor as require_tensor
    from rlsdk.environments.vector.process_vector import InWorkers as InWorkers
    from rlsdk.environments.vector.sync_vector import Waiting as Waiting
    from rlsdk.environments.vector.sync_vector import device_of as device_of
    from rlsdk.environments.vector.sync_vector import on_device as on_device
    from rlsdk.environments.vector.worker import ByValue as ByValue
    from rlsdk.environments.vector.worker import Request as Request
    from rlsdk.environments.vector.worker import VectorWorker as VectorWorker
    from rlsdk.environments.vectorize import make_vec_env as make_vec_env
    from rlsdk.environments.wrapping import FrameStack as FrameStack
    from rlsdk.environments.wrapping import NormalizeObservation as NormalizeObservation
    from rlsdk.environments.wrapping import NormalizeReward as NormalizeReward
    from rlsdk.environments.wrapping import warn_of_statistics as warn_of_statistics

HOMES = {
    **dict.fromkeys(("name_of", "named"), "rlsdk.environments.adapters.checks"),
    **dict.fromkeys(("GoalRules", "get_action_masks", "is_masking_supported"), "rlsdk.environments.adapters.masks"),
    **dict.fromkeys(("rows_of", "to_gymnasium", "to_space"), "rlsdk.environments.adapters.observations"),
    "connect": "rlsdk.environments.gymnasium_adapter",
    **dict.fromkeys(("OpaqueValue", "read_state"), "rlsdk.environments.states"),
    **dict.fromkeys(
        ("ConnectedEnv", "SteppedVector", "fingerprint_of", "require_copies"), "rlsdk.environments.vector.connected"
    ),
    **dict.fromkeys(("require_features", "require_tensor"), "rlsdk.environments.vector.custom_vector"),
    **dict.fromkeys(("Waiting", "device_of", "on_device"), "rlsdk.environments.vector.sync_vector"),
    "InWorkers": "rlsdk.environments.vector.process_vector",
    **dict.fromkeys(("ByValue", "Request", "VectorWorker"), "rlsdk.environments.vector.worker"),
    "make_vec_env": "rlsdk.environments.vectorize",
    **dict.fromkeys(("FrameStack", "NormalizeObservation", "NormalizeReward"), "rlsdk.environments.wrapping"),
    "warn_of_statistics": "rlsdk.environments.wrapping",
}
__all__ = sorted(HOMES)  # noqa: PLE0605  # type checkers read the imports above
__getattr__, __dir__ = attach(__name__, {**HOMES, "check_env": "rlsdk-envs"})
