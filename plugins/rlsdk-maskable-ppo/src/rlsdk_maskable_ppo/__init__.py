"""PPO with invalid action masking for rlsdk. The class is imported on first use, so that listing plugins is fast."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_maskable_ppo.agent import MaskablePPO as MaskablePPO
    from rlsdk_maskable_ppo.policies import MaskableActorCriticCnnPolicy as MaskableActorCriticCnnPolicy
    from rlsdk_maskable_ppo.policies import MaskableActorCriticPolicy as MaskableActorCriticPolicy
    from rlsdk_maskable_ppo.policies import MaskableMultiInputActorCriticPolicy as MaskableMultiInputActorCriticPolicy

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(__name__)
