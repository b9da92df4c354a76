"""The class `RecurrentPPO`, which users construct."""

from __future__ import annotations

from rlsdk.agent import Agent
from rlsdk.settings import configured_by
from rlsdk_recurrent_ppo.config import RecurrentPPOConfig


class RecurrentPPO(Agent[RecurrentPPOConfig]):
    """Proximal policy optimization (arXiv:1707.06347) with an LSTM or GRU for actor and critic."""

    @configured_by(RecurrentPPOConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
