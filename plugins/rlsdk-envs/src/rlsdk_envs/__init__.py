"""Toy tasks, Atari games, wrappers, and vector environments in C, torch and envpool.

Importing this package registers the ids `rlsdk/...` with gymnasium. rlsdk finds them without an import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach
from rlsdk_envs.registration import register as _register

if TYPE_CHECKING:
    from rlsdk_envs.atari import AtariWrapper as AtariWrapper
    from rlsdk_envs.atari import make_atari_env as make_atari_env
    from rlsdk_envs.c_vector import make_c_vec_env as make_c_vec_env
    from rlsdk_envs.check import check_env as check_env
    from rlsdk_envs.envpool_vector import make_envpool_vec_env as make_envpool_vec_env
    from rlsdk_envs.torch_vector import TorchEnv as TorchEnv
    from rlsdk_envs.torch_vector import make_torch_vec_env as make_torch_vec_env
    from rlsdk_envs.wrappers import ActionMasker as ActionMasker
    from rlsdk_envs.wrappers import CheckNan as CheckNan
    from rlsdk_envs.wrappers import CombinedActions as CombinedActions
    from rlsdk_envs.wrappers import MaskVelocity as MaskVelocity
    from rlsdk_envs.wrappers import Monitor as Monitor
    from rlsdk_envs.wrappers import TimeFeature as TimeFeature
    from rlsdk_envs.wrappers import load_results as load_results
    from rlsdk_envs.wrappers import plot_results as plot_results
    from rlsdk_envs.wrappers import ts2xy as ts2xy

__version__ = "0.1.0"
HOMES = {
    **dict.fromkeys(("AtariWrapper", "make_atari_env"), "rlsdk_envs.atari"),
    "check_env": "rlsdk_envs.check",
    "make_c_vec_env": "rlsdk_envs.c_vector",
    "make_envpool_vec_env": "rlsdk_envs.envpool_vector",
    **dict.fromkeys(("TorchEnv", "make_torch_vec_env"), "rlsdk_envs.torch_vector"),
    "toy": "rlsdk_envs.toy:",
    **dict.fromkeys(
        (
            "ActionMasker",
            "CheckNan",
            "CombinedActions",
            "MaskVelocity",
            "Monitor",
            "TimeFeature",
            "load_results",
            "plot_results",
            "ts2xy",
        ),
        "rlsdk_envs.wrappers",
    ),
}
__all__ = [
    "ActionMasker",
    "AtariWrapper",
    "CheckNan",
    "CombinedActions",
    "MaskVelocity",
    "Monitor",
    "TimeFeature",
    "TorchEnv",
    "check_env",
    "load_results",
    "make_atari_env",
    "make_c_vec_env",
    "make_envpool_vec_env",
    "make_torch_vec_env",
    "plot_results",
    "ts2xy",
]
__getattr__, __dir__ = attach(__name__, HOMES)
_register()
