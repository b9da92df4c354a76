"""PPO with invalid action masking for rlsdk. The class is imported on first use, so that listing plugins costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk_maskable_ppo.agent import MaskablePPO as MaskablePPO
    from rlsdk_maskable_ppo.policies import MaskableActorCriticCnnPolicy as MaskableActorCriticCnnPolicy
    from rlsdk_maskable_ppo.policies import MaskableActorCriticPolicy as MaskableActorCriticPolicy
    from rlsdk_maskable_ppo.policies import MaskableMultiInputActorCriticPolicy as MaskableMultiInputActorCriticPolicy

__version__ = "0.1.0"

__all__ = [
    "MaskableActorCriticCnnPolicy",
    "MaskableActorCriticPolicy",
    "MaskableMultiInputActorCriticPolicy",
    "MaskablePPO",
    "__version__",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "MaskablePPO": "rlsdk_maskable_ppo.agent",
        "MaskableActorCriticCnnPolicy": "rlsdk_maskable_ppo.policies",
        "MaskableActorCriticPolicy": "rlsdk_maskable_ppo.policies",
        "MaskableMultiInputActorCriticPolicy": "rlsdk_maskable_ppo.policies",
    },
)
