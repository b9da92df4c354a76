"""The documented policy classes, as names for the parameter `policy`."""

from __future__ import annotations

from rlsdk.settings import PolicyName

MlpLstmPolicy = PolicyName("MlpLstmPolicy")
CnnLstmPolicy = PolicyName("CnnLstmPolicy")
MultiInputLstmPolicy = PolicyName("MultiInputLstmPolicy")
RecurrentActorCriticPolicy = MlpLstmPolicy
RecurrentActorCriticCnnPolicy = CnnLstmPolicy
RecurrentMultiInputActorCriticPolicy = MultiInputLstmPolicy
