"""The class `BC`, which users construct."""

from __future__ import annotations

from rlsdk.agent import Agent
from rlsdk.settings import configured_by
from rlsdk_bc.config import BCConfig


class BC(Agent[BCConfig]):
    """Behavior cloning: supervised learning of recorded actions. `learn(n)` makes n updates and needs no environment."""

    @configured_by(BCConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
