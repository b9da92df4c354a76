"""The documented policy classes, as names for the parameter `policy`."""

from __future__ import annotations

from rlsdk.settings import PolicyName

MlpPolicy = PolicyName("MlpPolicy")
CnnPolicy = PolicyName("CnnPolicy")
MultiInputPolicy = PolicyName("MultiInputPolicy")
MaskableActorCriticPolicy = MlpPolicy
MaskableActorCriticCnnPolicy = CnnPolicy
MaskableMultiInputActorCriticPolicy = MultiInputPolicy
