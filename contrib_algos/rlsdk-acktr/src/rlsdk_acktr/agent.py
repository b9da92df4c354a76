"""The class `ACKTR`, which users construct."""

from __future__ import annotations

from rlsdk.agent import Agent
from rlsdk.settings import configured_by
from rlsdk_acktr.config import ACKTRConfig


class ACKTR(Agent[ACKTRConfig]):
    """Actor-critic using Kronecker-factored trust region (arXiv:1708.05144): one natural gradient step on each rollout."""

    @configured_by(ACKTRConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
