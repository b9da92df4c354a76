"""TD3 for rlsdk. The class is imported on first use, so that listing plugins is fast."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_td3.agent import TD3 as TD3
    from rlsdk_td3.policies import TD3Policy as TD3Policy

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(__name__)
