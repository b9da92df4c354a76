"""Generative adversarial imitation learning for rlsdk. The class is imported on first use, so that listing plugins is fast."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_gail.agent import GAIL as GAIL
    from rlsdk_gail.policies import ActorCriticCnnPolicy as ActorCriticCnnPolicy
    from rlsdk_gail.policies import ActorCriticPolicy as ActorCriticPolicy
    from rlsdk_gail.policies import MultiInputActorCriticPolicy as MultiInputActorCriticPolicy

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(__name__)
