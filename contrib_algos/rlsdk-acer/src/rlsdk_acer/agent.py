"""The class `ACER`, which users construct."""

from __future__ import annotations

from rlsdk.agent import Agent
from rlsdk.settings import configured_by
from rlsdk_acer.config import ACERConfig


class ACER(Agent[ACERConfig]):
    """Actor-critic with experience replay (arXiv:1611.01224): each rollout is learned from once, later also from replay."""

    @configured_by(ACERConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
