"""Toy tasks, Atari games, and vector environments in C, torch and envpool.

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
    from rlsdk_envs.envpool_vector import make_envpool_vec_env as make_envpool_vec_env
    from rlsdk_envs.torch_vector import TorchEnv as TorchEnv
    from rlsdk_envs.torch_vector import make_torch_vec_env as make_torch_vec_env

__version__ = "0.1.0"
HOMES = {
    **dict.fromkeys(("AtariWrapper", "make_atari_env"), "rlsdk_envs.atari"),
    "make_c_vec_env": "rlsdk_envs.c_vector",
    "make_envpool_vec_env": "rlsdk_envs.envpool_vector",
    **dict.fromkeys(("TorchEnv", "make_torch_vec_env"), "rlsdk_envs.torch_vector"),
    "toy": "rlsdk_envs.toy:",
}
__all__ = [
    "AtariWrapper",
    "TorchEnv",
    "make_atari_env",
    "make_c_vec_env",
    "make_envpool_vec_env",
    "make_torch_vec_env",
]
__getattr__, __dir__ = attach(__name__, HOMES)
_register()
