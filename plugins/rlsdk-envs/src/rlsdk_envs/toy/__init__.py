"""Small environments with known best actions and values, for tests and documentation.

They are registered with gymnasium as `rlsdk/<class name>-v0`, so they also work on the command line:
`rlsdk run tqc --env rlsdk/IdentityEnvBox-v0 --steps 2000`.
"""

from __future__ import annotations

from rlsdk_envs.toy.any_space import AnySpaceEnv, FakeImageEnv, SimpleMultiObsEnv
from rlsdk_envs.toy.bit_flipping import BitFlippingEnv
from rlsdk_envs.toy.chain import ChainEnv
from rlsdk_envs.toy.extra_info import ExtraInfo
from rlsdk_envs.toy.hybrid import HybridActionEnv
from rlsdk_envs.toy.identity import IdentityEnv, IdentityEnvBox, IdentityEnvMultiBinary, IdentityEnvMultiDiscrete
from rlsdk_envs.toy.invalid_actions import (
    InvalidActionEnvDiscrete,
    InvalidActionEnvMultiBinary,
    InvalidActionEnvMultiDiscrete,
)
from rlsdk_envs.toy.masked_choice import MaskedChoiceEnv
from rlsdk_envs.toy.position import action_at, position_in
from rlsdk_envs.toy.t_maze import TMazeEnv
from rlsdk_envs.toy.table import Outcome, TableEnv

__all__ = [
    "AnySpaceEnv",
    "BitFlippingEnv",
    "ChainEnv",
    "ExtraInfo",
    "FakeImageEnv",
    "HybridActionEnv",
    "IdentityEnv",
    "IdentityEnvBox",
    "IdentityEnvMultiBinary",
    "IdentityEnvMultiDiscrete",
    "InvalidActionEnvDiscrete",
    "InvalidActionEnvMultiBinary",
    "InvalidActionEnvMultiDiscrete",
    "MaskedChoiceEnv",
    "Outcome",
    "SimpleMultiObsEnv",
    "TMazeEnv",
    "TableEnv",
    "action_at",
    "position_in",
]
