"""Small environments with known answers, for tests and documentation.

They are registered with gymnasium as `rlsdk/<class name>-v0` when an id of that namespace is asked for, so they also work on
the command line: `rlsdk run tqc --env rlsdk/IdentityEnvBox-v0 --steps 2000`.
"""

from __future__ import annotations

import gymnasium

from rlsdk.environments.toy import no_velocity
from rlsdk.environments.toy.any_space import AnySpaceEnv, FakeImageEnv, SimpleMultiObsEnv
from rlsdk.environments.toy.bit_flipping import BitFlippingEnv
from rlsdk.environments.toy.chain import ChainEnv
from rlsdk.environments.toy.hybrid import HybridActionEnv
from rlsdk.environments.toy.identity import (
    IdentityEnv,
    IdentityEnvBox,
    IdentityEnvMultiBinary,
    IdentityEnvMultiDiscrete,
)
from rlsdk.environments.toy.invalid_actions import (
    InvalidActionEnvDiscrete,
    InvalidActionEnvMultiBinary,
    InvalidActionEnvMultiDiscrete,
)
from rlsdk.environments.toy.t_maze import TMazeEnv

__all__ = [
    "AnySpaceEnv",
    "BitFlippingEnv",
    "ChainEnv",
    "FakeImageEnv",
    "HybridActionEnv",
    "IdentityEnv",
    "IdentityEnvBox",
    "IdentityEnvMultiBinary",
    "IdentityEnvMultiDiscrete",
    "InvalidActionEnvDiscrete",
    "InvalidActionEnvMultiBinary",
    "InvalidActionEnvMultiDiscrete",
    "SimpleMultiObsEnv",
    "TMazeEnv",
    "register",
]

NEEDS_ARGUMENTS = ("AnySpaceEnv",)


def register() -> None:
    """Make the environments known to gymnasium; calling it again does nothing."""
    for name in __all__:
        identity = f"rlsdk/{name}-v0"
        if name != "register" and name not in NEEDS_ARGUMENTS and identity not in gymnasium.registry:
            gymnasium.register(identity, globals()[name])
    no_velocity.register()
