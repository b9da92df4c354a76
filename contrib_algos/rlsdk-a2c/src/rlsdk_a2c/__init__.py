"""Advantage actor-critic for rlsdk. The class is imported on first use, so that listing plugins is fast."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_a2c.agent import A2C as A2C
    from rlsdk_a2c.policies import ActorCriticCnnPolicy as ActorCriticCnnPolicy
    from rlsdk_a2c.policies import ActorCriticPolicy as ActorCriticPolicy
    from rlsdk_a2c.policies import MultiInputActorCriticPolicy as MultiInputActorCriticPolicy

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(__name__)
