"""The user-facing class."""

from __future__ import annotations

from typing import Any

from rlsdk.agent import Agent
from rlsdk.constructor import configured_by
from rlsdk_recurrent_ppo.config import RecurrentPPOConfig
from rlsdk_recurrent_ppo.plugin import SPEC


class RecurrentPPO(Agent):
    """Proximal policy optimisation (arXiv:1707.06347) with an LSTM or GRU for actor and critic."""

    spec = SPEC

    @configured_by(RecurrentPPOConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
