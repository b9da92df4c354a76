"""The documented policy classes, as names for the parameter `policy`."""

from __future__ import annotations

from rlsdk.settings import PolicyName

LinearPolicy = PolicyName("LinearPolicy")
MlpPolicy = PolicyName("MlpPolicy")
ARSLinearPolicy = LinearPolicy
ARSPolicy = MlpPolicy
