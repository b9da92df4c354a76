"""Small environments with known best actions and values, for tests and documentation. Each is imported at its first use.

They are registered with gymnasium as `rlsdk/<class name>-v0`, so they also work on the command line:
`rlsdk run tqc --env rlsdk/IdentityEnvBox-v0 --steps 2000`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.environments.toy.any_space import AnySpaceEnv as AnySpaceEnv
    from rlsdk.environments.toy.any_space import FakeImageEnv as FakeImageEnv
    from rlsdk.environments.toy.any_space import SimpleMultiObsEnv as SimpleMultiObsEnv
    from rlsdk.environments.toy.bit_flipping import BitFlippingEnv as BitFlippingEnv
    from rlsdk.environments.toy.chain import ChainEnv as ChainEnv
    from rlsdk.environments.toy.extra_info import ExtraInfo as ExtraInfo
    from rlsdk.environments.toy.hybrid import HybridActionEnv as HybridActionEnv
    from rlsdk.environments.toy.identity import IdentityEnv as IdentityEnv
    from rlsdk.environments.toy.identity import IdentityEnvBox as IdentityEnvBox
    from rlsdk.environments.toy.identity import IdentityEnvMultiBinary as IdentityEnvMultiBinary
    from rlsdk.environments.toy.identity import IdentityEnvMultiDiscrete as IdentityEnvMultiDiscrete
    from rlsdk.environments.toy.invalid_actions import InvalidActionEnvDiscrete as InvalidActionEnvDiscrete
    from rlsdk.environments.toy.invalid_actions import InvalidActionEnvMultiBinary as InvalidActionEnvMultiBinary
    from rlsdk.environments.toy.invalid_actions import InvalidActionEnvMultiDiscrete as InvalidActionEnvMultiDiscrete
    from rlsdk.environments.toy.masked_choice import MaskedChoiceEnv as MaskedChoiceEnv
    from rlsdk.environments.toy.position import action_at as action_at
    from rlsdk.environments.toy.position import position_in as position_in
    from rlsdk.environments.toy.t_maze import TMazeEnv as TMazeEnv
    from rlsdk.environments.toy.table import Outcome as Outcome
    from rlsdk.environments.toy.table import TableEnv as TableEnv

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

WITHOUT_ARGUMENTS = tuple(name for name in __all__ if "Env" in name and name != "AnySpaceEnv")
"""Environment classes with a constructor that needs no arguments. Their ids are rlsdk/<class>-v0."""

_MODULES = {
    "any_space": ("AnySpaceEnv", "FakeImageEnv", "SimpleMultiObsEnv"),
    "bit_flipping": ("BitFlippingEnv",),
    "chain": ("ChainEnv",),
    "extra_info": ("ExtraInfo",),
    "hybrid": ("HybridActionEnv",),
    "identity": ("IdentityEnv", "IdentityEnvBox", "IdentityEnvMultiBinary", "IdentityEnvMultiDiscrete"),
    "invalid_actions": ("InvalidActionEnvDiscrete", "InvalidActionEnvMultiBinary", "InvalidActionEnvMultiDiscrete"),
    "masked_choice": ("MaskedChoiceEnv",),
    "position": ("action_at", "position_in"),
    "t_maze": ("TMazeEnv",),
    "table": ("Outcome", "TableEnv"),
}
__getattr__, __dir__ = attach(
    __name__, {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
)
