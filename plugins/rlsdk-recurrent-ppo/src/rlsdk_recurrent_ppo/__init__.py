"""PPO with recurrent policies for rlsdk. The class is imported on first use, so that listing plugins is fast."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_recurrent_ppo.agent import RecurrentPPO as RecurrentPPO
    from rlsdk_recurrent_ppo.policies import RecurrentActorCriticCnnPolicy as RecurrentActorCriticCnnPolicy
    from rlsdk_recurrent_ppo.policies import RecurrentActorCriticPolicy as RecurrentActorCriticPolicy
    from rlsdk_recurrent_ppo.policies import (
        RecurrentMultiInputActorCriticPolicy as RecurrentMultiInputActorCriticPolicy,
    )

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(__name__)
