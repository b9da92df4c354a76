"""The class `A2C`, which users construct."""

from __future__ import annotations

from rlsdk.agent import Agent
from rlsdk.settings import configured_by
from rlsdk_a2c.config import A2CConfig


class A2C(Agent[A2CConfig]):
    """Advantage actor-critic (arXiv:1602.01783), synchronous: one gradient step on each short rollout."""

    @configured_by(A2CConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
