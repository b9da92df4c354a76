"""PPO with recurrent policies for rlsdk. The class is imported on first use, so that listing plugins costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk_recurrent_ppo.agent import RecurrentPPO as RecurrentPPO
    from rlsdk_recurrent_ppo.policies import RecurrentActorCriticCnnPolicy as RecurrentActorCriticCnnPolicy
    from rlsdk_recurrent_ppo.policies import RecurrentActorCriticPolicy as RecurrentActorCriticPolicy
    from rlsdk_recurrent_ppo.policies import (
        RecurrentMultiInputActorCriticPolicy as RecurrentMultiInputActorCriticPolicy,
    )

__version__ = "0.1.0"

__all__ = [
    "RecurrentActorCriticCnnPolicy",
    "RecurrentActorCriticPolicy",
    "RecurrentMultiInputActorCriticPolicy",
    "RecurrentPPO",
    "__version__",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "RecurrentPPO": "rlsdk_recurrent_ppo.agent",
        "RecurrentActorCriticCnnPolicy": "rlsdk_recurrent_ppo.policies",
        "RecurrentActorCriticPolicy": "rlsdk_recurrent_ppo.policies",
        "RecurrentMultiInputActorCriticPolicy": "rlsdk_recurrent_ppo.policies",
    },
)
